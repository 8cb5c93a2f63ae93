// SPDX-License-Identifier: Apache-2.0

// A user's program, built against the installed library by check.sh: it uses a part of each header,
// and prints the version it runs on.
#include <verge/verge.h>

#include <array>
#include <chrono>
#include <iostream>
#include <optional>

using namespace std::chrono_literals;

namespace {

verge::task<int> answer(verge::receiver<int> from) {
  std::optional<int> got;
  co_await verge::select(verge::recv(from, got), verge::recv(verge::after(1h)));
  co_await verge::sleep(1ms);
  co_return *got;
}

/// Exceptions of the library are caught by their type.
bool times_out() {
  try {
    verge::timeout(verge::recv(verge::chan<int>()), 1ms).wait();
  } catch (const verge::timed_out&) {
    return true;
  }
  return false;
}

bool is_cancelled_under_a_context() {
  auto [ctx, cancel] = verge::with_timeout(verge::background(), 1ms);
  try {
    verge::under(ctx, verge::sleep(1h)).wait();
  } catch (const verge::cancelled&) {
    return ctx.err() == verge::context_errc::deadline_exceeded;
  }
  return false;
}

bool echoes() {
  auto [pipe, error] = verge::make_pipe();
  std::array<char, 2> bytes{};
  return !error && pipe.to.write_all("ok").wait() && pipe.from.read_full(bytes).wait() &&
         bytes[0] == 'o';
}

}  // namespace

int main() {
  verge::runtime rt{{.processors = 2}};
  verge::chan<int> numbers(1);
  const verge::timer t = verge::after_func(rt, 1ms, [&] { numbers.send(42); });
  verge::timer_queue timers;
  timers.start(std::chrono::steady_clock::now() + 1h, [] {});
  if (rt.run(answer(numbers)) != 42 || timers.size() != 1) return 1;
  if (!times_out() || !is_cancelled_under_a_context() || !echoes()) return 1;
  if (verge::simulation().run([] { return verge::clock::now(); }) == verge::time_point()) return 1;
  std::cout << verge::version() << '\n';
}
