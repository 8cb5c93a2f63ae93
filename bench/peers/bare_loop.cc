// No timer system at all: a loop that sleeps until the next deadline with epoll_pwait2 and the
// least timer slack. What the kernel gives, beside which the lateness of the others is seen.

#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <stdexcept>
#include <string>

#include "linked.h"
#include "measure.h"

namespace verge::bench {
namespace {

class kernel_sleeper {
 public:
  kernel_sleeper() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    if (epoll_ < 0) throw std::runtime_error("epoll_create1 failed");
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  }
  ~kernel_sleeper() { close(epoll_); }
  kernel_sleeper(const kernel_sleeper&) = delete;
  kernel_sleeper& operator=(const kernel_sleeper&) = delete;

  void sleep_until(std::int64_t when) const {
    for (std::int64_t left = when - now(); left > 0; left = when - now()) {
      const timespec t{.tv_sec = left / second, .tv_nsec = left % second};
      epoll_event event{};
      if (syscall(SYS_epoll_pwait2, epoll_, &event, 1, &t, nullptr, 0) < 0 && errno != EINTR) {
        throw std::runtime_error("epoll_pwait2 failed: it needs Linux 5.11");
      }
    }
  }

 private:
  int epoll_;
};

answer run(const request& r) {
  if (r.workload.starts_with("lateness_") && r.timers == 0) {
    const kernel_sleeper kernel;
    random_numbers random(r.seed + 1);
    const std::int64_t first = now() + 100 * millisecond;
    answer result;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(r.milliseconds); ++i) {
      appointment a{.due = first + i * millisecond + random.within(millisecond), .late = 0};
      kernel.sleep_until(a.due);
      call(&a);
      result.late_ns.push_back(a.late);
    }
    return result;
  }
  throw unsupported("a loop without timers");
}

}  // namespace

linked_peer bare_loop_peer() { return {.version = "epoll_pwait2", .run = &run}; }

}  // namespace verge::bench
