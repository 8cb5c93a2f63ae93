// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <stdexcept>

#include "measure.h"

namespace verge::bench {

/// Sleeps with epoll_pwait2 and the least timer slack, which the calling thread keeps.
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

}  // namespace verge::bench
