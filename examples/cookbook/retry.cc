// SPDX-License-Identifier: Apache-2.0

// Retries with back-off and jitter, under the caller's deadline, and only for what may succeed.

#include <chrono>
#include <cstdio>
#include <system_error>

#include <verge/context.h>
#include <verge/retry.h>
#include <verge/simulation.h>
#include <verge/timeout.h>

using namespace std::chrono_literals;

namespace {

int calls = 0;

verge::task<int> call_server() {
  co_await verge::sleep(20ms);
  if (++calls < 4) throw std::system_error(make_error_code(std::errc::connection_refused));
  co_return 42;
}

// [retry]
verge::task<int> call(verge::context ctx) {
  const verge::retry_policy policy{.first = 50ms, .longest = 2s, .jitter = 0.5, .attempts = 6};
  co_return co_await verge::retry(
      ctx, policy, [] { return verge::timeout(call_server(), 500ms); },  // for each attempt
      [](const verge::retry_failure& f) {
        std::printf("attempt %u: %s\n", f.attempt, f.error.message().c_str());
        return f.error != std::errc::permission_denied;  // that will not change
      });
}
// [/retry]

}  // namespace

int main() {
  verge::simulation sim;
  auto [ctx, cancel] = verge::with_timeout(verge::background(), 5s);
  const int answer = sim.run(call(ctx));
  std::printf("%d at call %d\n", answer, calls);
  return answer == 42 && calls == 4 ? 0 : 1;
}
