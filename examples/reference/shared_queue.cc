// SPDX-License-Identifier: Apache-2.0

#include <verge/shared_queue.h>
#include <verge/verge.h>

#include <sys/eventfd.h>

namespace reference_shared_queue {

using namespace std::chrono_literals;

void wait_for_events(int wake, std::optional<verge::clock::time_point> until);

void example(int wake, std::function<void()> f) {
  verge::shared_timer_queue timers([&](auto) { eventfd_write(wake, 1); });

  const auto loop = [&] {
    for (;;) {  // the loop's thread
      wait_for_events(wake, timers.sleep_until());
      timers.run(verge::clock::now());
    }
  };

  auto t = timers.start(verge::clock::fast_now() + 30s, f);  // any thread
  timers.stop(t);                                            // true: f will not be called
}

}  // namespace reference_shared_queue
