// SPDX-License-Identifier: Apache-2.0

#include <verge/retry.h>
#include <verge/verge.h>

#include <thread>

namespace reference_retry {

using namespace std::chrono_literals;

struct host {};
verge::task<int> call(host h);
verge::task<verge::io_result> send();
bool connect();

verge::task<> example(verge::context ctx, host server) {
  auto reply = co_await verge::retry(ctx, {.attempts = 4}, [&] { return call(server); });

  verge::backoff pauses({.first = 5ms, .longest = 1s, .attempts = 0});  // in your own loop
  while (!connect()) std::this_thread::sleep_for(*pauses.next());
  pauses.reset();
}

verge::task<> some_errors(verge::context ctx) {
  co_await verge::retry(ctx, {}, send, [](const verge::retry_failure& f) {
    return f.error != std::errc::permission_denied;
  });
}

}  // namespace reference_retry
