// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include <verge/clock.h>
#include <verge/duration.h>
#include <verge/shared_queue.h>

#pragma GCC visibility push(default)

/// Timers for any loop that watches descriptors: epoll, poll, select, io_uring, or a library's.
///
///   verge::loop_timers timers;
///   epoll_event timer_event{.events = EPOLLIN, .data = {.fd = timers.fd()}};
///   epoll_ctl(loop, EPOLL_CTL_ADD, timers.fd(), &timer_event);
///   auto idle = timers.start(30s, [&] { close(connection); });
///   for (;;) {
///     const int n = epoll_wait(loop, events, std::size(events), -1);
///     for (const auto& e : std::span(events, static_cast<std::size_t>(n)))
///       if (e.data.fd == timers.fd()) timers.run();
///       else handle(e);                                // which says timers.reset(idle, 30s)
///   }
///
/// fd() is readable when a timer is due, and until run() has been called. Timers are started,
/// stopped and reset from any thread; the loop then wakes in time. One thread at a time calls
/// run(), which calls what is due. Nothing else is needed: no time-out to compute, no eventfd.
///
/// The descriptor is a timerfd: the kernel wakes the loop with the resolution of its timers, not
/// of a time-out in milliseconds. Setting it takes one system call when the first timer changes to
/// an earlier one and one at the end of each run(); other starts, stops and resets take none.
///
/// <verge/uv.h>, <verge/libevent.h>, <verge/libev.h> and <verge/glib.h> register the descriptor
/// with the loop of that library; docs/adapters.md shows each in ten lines.
namespace verge {

/// A timerfd on the clock of verge::clock.
class alarm_fd {
 public:
  /// Throws std::system_error.
  alarm_fd();
  ~alarm_fd();
  alarm_fd(const alarm_fd&) = delete;
  alarm_fd& operator=(const alarm_fd&) = delete;

  /// The number of the descriptor, for epoll and the like. Do not read from it or close it.
  [[nodiscard]] int fd() const noexcept { return fd_; }
  /// Makes the descriptor readable at `when`, at once if that has passed; until then it is not.
  /// Nothing: it stays unreadable. Thread-safe.
  void set(std::optional<clock::time_point> when) noexcept;

 private:
  int fd_;
};

/// Timers with a descriptor to watch. `Callback` is called without arguments.
template <class Callback = std::function<void()>>
class basic_loop_timers {
 public:
  using queue = basic_shared_timer_queue<Callback, clock>;  ///< where the timers are
  using time_point = clock::time_point;                     ///< a time on the clock of all timers
  using id = typename queue::id;                            ///< identifies a timer
  using started = typename queue::started;                  ///< what start() returns

  /// Throws std::system_error if there is no descriptor left.
  basic_loop_timers() : timers_([this](time_point when) { alarm_.set(when); }) {
    timers_.sleep_until();
  }
  basic_loop_timers(const basic_loop_timers&) = delete;
  basic_loop_timers& operator=(const basic_loop_timers&) = delete;
  /// Pending timers are not called. Stop watching fd() first.
  ~basic_loop_timers() = default;

  /// The descriptor to watch for reading.
  [[nodiscard]] int fd() const noexcept { return alarm_.fd(); }

  /// Makes run() call f in `d`. From any thread. A zero or negative `d` is due at once, one past
  /// the end of the clock never.
  template <class Rep, class Period>
  started start(std::chrono::duration<Rep, Period> d, Callback f) {
    return timers_.start(from_now(d), std::move(f));
  }
  started start(time_point when, Callback f) { return timers_.start(when, std::move(f)); }

  /// Returns true if the timer was pending: it will not be called. False: it has been called, is
  /// being called, or was stopped before. From any thread.
  bool stop(id which) noexcept { return timers_.stop(which); }

  /// Changes the time of a pending timer. Returns false if it is no longer pending: start another.
  /// From any thread.
  template <class Rep, class Period>
  bool reset(id which, std::chrono::duration<Rep, Period> d) {
    return timers_.reset(which, from_now(d));
  }
  bool reset(id which, time_point when) { return timers_.reset(which, when); }

  /// Returns whether the timer has neither been called nor stopped.
  [[nodiscard]] bool pending(id which) const noexcept { return timers_.pending(which); }
  /// The number of pending timers.
  [[nodiscard]] std::size_t size() const noexcept { return timers_.size(); }
  /// Returns whether no timer is pending.
  [[nodiscard]] bool empty() const noexcept { return timers_.empty(); }

  /// When to call run() next, for a loop that does not watch fd(); nothing if no timer is pending.
  /// Never later than the first timer.
  [[nodiscard]] std::optional<time_point> next() const noexcept { return timers_.next(); }

  /// Calls what is due, at most `at_most` callbacks, and returns how many were called. If there are
  /// more, or if a callback throws, fd() stays readable.
  std::size_t run(std::size_t at_most = std::numeric_limits<std::size_t>::max()) {
    const rearm at_the_end{*this};
    return timers_.run(clock::now(), at_most);
  }

 private:
  struct rearm {
    basic_loop_timers& of;
    ~rearm() {
      of.timers_.sleep_until([this](std::optional<time_point> next) { of.alarm_.set(next); });
    }
  };

  template <class Rep, class Period>
  static time_point from_now(std::chrono::duration<Rep, Period> d) noexcept {
    return after(clock::fast_now(), d);
  }
  /// Saturates.
  template <class Rep, class Period>
  static time_point after(time_point t, std::chrono::duration<Rep, Period> d) noexcept {
    const auto delay = saturate(d);
    if (delay <= delay.zero()) return t;
    return delay > time_point::max() - t ? time_point::max() : t + delay;
  }

  alarm_fd alarm_;
  queue timers_;
};

/// With callbacks of any type.
using loop_timers = basic_loop_timers<>;

}  // namespace verge

#pragma GCC visibility pop
