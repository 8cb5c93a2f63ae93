// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include <verge/clock.h>
#include <verge/queue.h>

#pragma GCC visibility push(default)

/// A timer_queue that one loop runs and any thread uses.
///
///   verge::shared_timer_queue timers([&](auto) { eventfd_write(wake, 1); });
///
///   for (;;) {                                                    // the loop's thread
///     wait_for_events(wake, timers.sleep_until());
///     timers.run(verge::clock::now());
///   }
///
///   auto t = timers.start(verge::clock::fast_now() + 30s, f);     // any thread
///   timers.stop(t);                                               // true: f will not be called
///
/// A loop that watches descriptors is better served by <verge/loop.h>, which needs no wake-up of
/// its own.
///
/// Ground rules
///
/// 1. One mutex guards the queue and `planned_`. No callback is called, destroyed or copied with
///    the mutex held, so a callback may use the queue. `wake` is called with the mutex held.
/// 2. A timer is claimed by the thread that removes it from the queue under the mutex: by run(),
///    which then calls it, or by stop(), which then returns true. So a timer is called or stopped,
///    never both, and a stop() that returns true is final. run() claims one timer at a time, just
///    before its call: a callback can still stop the timers that are due after it.
/// 3. `planned_` is when the loop wakes by itself: the result of its last sleep_until(). start()
///    and reset() to an earlier time set it to that time and call `wake` in the same critical
///    section. So at the end of every critical section either the loop is awake and will call
///    sleep_until(), or no timer is earlier than planned_, or `wake` has been called after the
///    loop's last sleep_until(). A wake-up cannot be lost between sleep_until() and the wait if the
///    wake-up is sticky: an eventfd, a timerfd, uv_async_send().
/// 4. While run() is running, `planned_` is "awake" and `wake` is not called: the loop calls
///    sleep_until() before it waits.
///
/// One thread at a time may call run() and sleep_until(). Destroying the queue must not overlap
/// with any other use of it.
namespace verge {

/// A timer_queue with a lock, and with a function that wakes its loop.
template <class Callback = std::function<void()>, class Clock = clock>
class basic_shared_timer_queue {
 public:
  using queue = basic_timer_queue<Callback, Clock>;  ///< what the lock protects
  using time_point = typename Clock::time_point;     ///< a time on its clock
  using id = typename queue::id;                     ///< identifies a timer
  using started = typename queue::started;           ///< what start() returns

  /// `wake` makes the loop call run() no later than the given time. It is called with the queue's
  /// lock held: it must not use the queue, block or throw.
  explicit basic_shared_timer_queue(std::function<void(time_point)> wake)
      : wake_(std::move(wake)) {}
  basic_shared_timer_queue(const basic_shared_timer_queue&) = delete;
  basic_shared_timer_queue& operator=(const basic_shared_timer_queue&) = delete;
  ~basic_shared_timer_queue() = default;

  /// As timer_queue::start, from any thread. `first` tells whether the loop is woken for it.
  started start(time_point when, Callback f) {
    const std::lock_guard held(mutex_);
    started s = timers_.start(when, std::move(f));
    s.first = wake_for(when);
    return s;
  }

  /// Returns true if the timer was pending: it will not be called. False: it has been called, is
  /// being called, or was stopped before. Its callback is destroyed on this thread.
  bool stop(id which) noexcept { return take(which).has_value(); }

  /// Changes the time of a pending timer. Returns false if it has been called, is being called, or
  /// was stopped: start another.
  bool reset(id which, time_point when) {
    const std::lock_guard held(mutex_);
    if (!timers_.reset(which, when)) return false;
    wake_for(when);
    return true;
  }

  /// Returns whether the timer has neither been called nor stopped.
  [[nodiscard]] bool pending(id which) const noexcept {
    const std::lock_guard held(mutex_);
    return timers_.pending(which);
  }
  /// The number of pending timers.
  [[nodiscard]] std::size_t size() const noexcept {
    const std::lock_guard held(mutex_);
    return timers_.size();
  }
  /// Returns whether no timer is pending.
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }

  /// As timer_queue::next. A loop that is to be woken calls sleep_until().
  [[nodiscard]] std::optional<time_point> next() const noexcept {
    const std::lock_guard held(mutex_);
    return timers_.next();
  }

  /// For the loop, before it waits: when to call run() next; nothing if no timer is pending. From
  /// now on `wake` is called if a timer becomes earlier than that.
  std::optional<time_point> sleep_until() {
    return sleep_until([](std::optional<time_point>) {});
  }
  /// The same for a loop whose alarm is set by a call: arm(next) is called with the lock held, so
  /// that it is ordered with the calls of `wake`.
  template <class Arm>
  std::optional<time_point> sleep_until(Arm&& arm) {
    const std::lock_guard held(mutex_);
    const auto next = timers_.next();
    planned_ = next.value_or(time_point::max());
    std::forward<Arm>(arm)(next);
    return next;
  }

  /// For the loop: as timer_queue::run. Callbacks run without the lock.
  std::size_t run(time_point now, std::size_t at_most = std::numeric_limits<std::size_t>::max()) {
    std::size_t called = 0;
    for (; called < at_most; ++called) {
      std::optional<Callback> f = claim(now);
      if (!f) break;
      (*f)();
    }
    return called;
  }

 private:
  std::optional<Callback> take(id which) noexcept {
    const std::lock_guard held(mutex_);
    return timers_.take(which);
  }

  std::optional<Callback> claim(time_point now) {
    const std::lock_guard held(mutex_);
    planned_ = awake;
    return timers_.pop(now);
  }

  /// With the lock held.
  bool wake_for(time_point when) {
    if (when >= planned_) return false;
    planned_ = when;
    wake_(when);
    return true;
  }

  /// No timer is earlier.
  static constexpr time_point awake = time_point::min();

  mutable std::mutex mutex_;
  queue timers_;
  time_point planned_ = awake;
  std::function<void(time_point)> wake_;
};

/// With callbacks of any type, on verge::clock.
using shared_timer_queue = basic_shared_timer_queue<>;

}  // namespace verge

#pragma GCC visibility pop
