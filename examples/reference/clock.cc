// SPDX-License-Identifier: Apache-2.0

#include <verge/clock.h>
#include <verge/verge.h>

namespace reference_clock {

using namespace std::chrono_literals;
using queue = verge::basic_timer_queue<std::function<void()>, verge::clock>;

void example(queue& timers, queue::id idle) {
  timers.reset(idle, verge::clock::fast_now() + 30s);  // a timer_queue with this clock
  timers.run(verge::clock::now());
}

}  // namespace reference_clock
