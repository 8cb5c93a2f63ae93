// SPDX-License-Identifier: Apache-2.0

// The timerfd of loop_timers.

#include <sys/timerfd.h>
#include <unistd.h>
#include <verge/loop.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include <base/log.h>

namespace verge {

alarm_fd::alarm_fd() : fd_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
  if (fd_ < 0) {
    throw std::system_error(errno, std::system_category(),
                            "verge: cannot create a timerfd for the timers of a loop; if too many "
                            "files are open, raise the limit (ulimit -n) or close some");
  }
}

alarm_fd::~alarm_fd() { ::close(fd_); }

void alarm_fd::set(std::optional<clock::time_point> when) noexcept {
  constexpr std::int64_t ns_per_s = 1'000'000'000;
  itimerspec spec{};  // all zero disarms it
  if (when && *when != clock::time_point::max()) {
    // The clock's times are positive, but a caller may pass any: those have passed.
    const std::int64_t ns = std::max<std::int64_t>(when->time_since_epoch().count(), 1);
    spec.it_value = {.tv_sec = ns / ns_per_s, .tv_nsec = ns % ns_per_s};
  }
  // Setting it discards an earlier expiry, so that the descriptor need not be read.
  if (::timerfd_settime(fd_, TFD_TIMER_ABSTIME, &spec, nullptr) == 0) return;
  detail::log(log_level::fatal,
              "timerfd_settime failed with error %d (%s): the descriptor of loop_timers was closed "
              "or replaced by other code",
              errno, std::generic_category().message(errno).c_str());
  std::abort();
}

}  // namespace verge
