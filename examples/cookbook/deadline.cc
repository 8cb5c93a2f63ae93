// SPDX-License-Identifier: Apache-2.0

// A call with a deadline: the caller's, shortened by the callee, passed to everything below.

#include <chrono>
#include <cstdio>
#include <string>
#include <system_error>

#include <verge/context.h>
#include <verge/simulation.h>
#include <verge/under.h>

using namespace std::chrono_literals;

namespace {

verge::task<std::string> query_database(verge::context ctx) {
  co_await verge::under(ctx, verge::sleep(3s));
  co_return "rows";
}

// [call]
verge::task<std::string> load_page(verge::context ctx) {
  auto [mine, cancel] = verge::with_timeout(ctx, 2s);  // or earlier, if the caller has less time
  co_return co_await query_database(mine);
}

verge::task<std::error_code> handle_request() {
  auto [ctx, cancel] = verge::with_timeout(verge::background(), 10s);
  try {
    const std::string page = co_await load_page(ctx);
    std::printf("%s\n", page.c_str());
  } catch (const verge::context_error& e) {
    co_return e.code();  // equals std::errc::timed_out
  }
  co_return std::error_code();
}
// [/call]

}  // namespace

int main() {
  verge::simulation sim;
  const auto start = sim.now();
  const auto error = sim.run(handle_request());
  std::printf("after %d ms: %s\n", static_cast<int>((sim.now() - start) / 1ms),
              error.message().c_str());
  return error == std::errc::timed_out && sim.now() == start + 2s ? 0 : 1;
}
