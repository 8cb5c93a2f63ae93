// SPDX-License-Identifier: Apache-2.0

// A time-out by a timed scheduler, for senders and receivers: stdexec's, or a stand-in of its
// concepts where its headers are not installed.

#include <verge/execution.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <semaphore>

using namespace std::chrono_literals;

struct print_and_end {
  using receiver_concept = stdexec::receiver_t;
  std::binary_semaphore* ended;
  void set_value() && noexcept {
    std::puts("time is up");
    ended->release();
  }
  void set_stopped() && noexcept { ended->release(); }
  void set_error(const std::exception_ptr& /*e*/) && noexcept { ended->release(); }
};

int main() {
  const verge::timed_scheduler scheduler;
  std::binary_semaphore ended{0};
  auto work = stdexec::connect(scheduler.schedule_after(20ms), print_and_end{&ended});
  stdexec::start(work);
  ended.acquire();
}
