// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

#include <verge/chan.h>
#include <verge/clock.h>
#include <verge/detail/owned.h>
#include <verge/detail/sleep.h>
#include <verge/detail/timer_functions.h>
#include <verge/duration.h>
#include <verge/timer_options.h>

#pragma GCC visibility push(default)

/// Timers.
///
///   auto reminder = verge::after_func(3min, [=] { remind(customer); });   // calls back later
///   reminder.stop();                                        // true: it will never run
///   reminder.reset(1h, {.slack = 1s});                      // again, up to 1 s late
///   reminder.reset(10ms, {.precise = true});                // to the microsecond, for some CPU
///
///   verge::timer t(30s);                                    // or a channel that gets the time
///   auto when = t.c().recv();
///
///   co_await verge::sleep(10ms);                            // in a coroutine
///   verge::sleep(10ms).wait();                              // on a plain thread
///
///   verge::ticker tk(100ms);                                // periodic
///   for (auto at : tk.c()) poll(at);
///
/// Every function may be called from any thread, on any timer, at any time. No timer fires early. A
/// delay may have any std::chrono unit: a zero or negative one is due at once, and one that leads
/// past the end of the clock is never due.
///
/// The calls of one timer do not overlap, and each happens before the next: a function that counts
/// with a plain ++ is correct. If a timer is reset while its function runs and expires before that
/// call returns, the next call begins after it; a ticker calls late or not at all, see
/// missed_ticks. Calls of different timers may run concurrently. A function that must overlap with
/// its own next call spawns a task (verge/task.h).
///
/// A handle owns its timer. Destroying it stops the timer, waits for a callback that runs on
/// another thread (never for the callback it is called from), and destroys the callback's captures.
/// So no callback is called or running once the handle is destroyed. detach() keeps the timer
/// running without a handle. <verge/verge.h> has a table of what the other handles do.
///
/// A runtime& as the first argument selects the runtime. Without it, a timer belongs to the runtime
/// of the calling task or callback, and on a plain thread to the default runtime.
///
/// The channel of a timer closes when the timer's runtime ends: waiting receivers wake, and recv()
/// returns an empty optional. A channel whose timer no longer exists (an after() that has fired, a
/// timer whose handle was destroyed) stays open and delivers nothing more.
///
/// What a callback returns is discarded, unless that is a task: a callback may be a coroutine
/// function. Its call ends when it has spawned the coroutine, which is a separate task: no handle
/// waits for it.
///
/// Deadlock. The destructor of a handle, and assignment to it, wait for a running callback. So do
/// reset() of a std::optional or std::unique_ptr that holds a timer, and erase() of such a map
/// element. Do not do this while holding a mutex that the callback locks: the callback waits for
/// the mutex and the destructor for the callback. Move the handle out and destroy it after the
/// unlock:
///
///   verge::timer old;
///   {
///     std::lock_guard held(mutex);
///     old = std::move(connection.idle);       // `old` was empty: nothing to wait for
///     old.stop();                             // does not wait
///   }                                         // `old` is destroyed without the mutex
///
/// For the same reason two callbacks that run concurrently must not destroy each other's handle:
/// call stop() instead. A library built without NDEBUG reports on standard error a destructor that
/// has waited for a second.
namespace verge {

/// A time on the clock of all timers.
using time_point = clock::time_point;

/// A timer that fires once: it sends to its channel or calls its function.
///
/// Destroying the handle stops the timer and waits for a call in progress on another thread. On an
/// empty handle, stop(), reset(), reset_at(), detach() and c() throw std::logic_error.
class [[nodiscard("destroying the handle stops the timer: keep it, or detach() it")]] timer {
 public:
  /// An empty handle.
  timer() noexcept = default;

  /// Sends the current time to c() after `d`.
  template <class Rep, class Period>
  [[nodiscard("destroying the handle stops the timer: keep it, or detach() it")]] explicit timer(
      std::chrono::duration<Rep, Period> d, timer_options options = {})
      : timer(detail::start_channel_timer(detail::timers_here(), saturate(d).count(),
                                          detail::slack_of(options), detail::name_of(options))) {}
  template <class Rep, class Period>
  [[nodiscard("destroying the handle stops the timer: keep it, or detach() it")]] timer(
      runtime & rt, std::chrono::duration<Rep, Period> d, timer_options options = {})
      : timer(detail::start_channel_timer(detail::timers_of(rt), saturate(d).count(),
                                          detail::slack_of(options), detail::name_of(options))) {}
  /// The same at a time point of verge::clock or std::chrono::steady_clock.
  template <class Clock, class Duration>
  [[nodiscard("destroying the handle stops the timer: keep it, or detach() it")]] explicit timer(
      std::chrono::time_point<Clock, Duration> when, timer_options options = {})
      : timer(detail::start_channel_timer_at(detail::timers_here(), detail::count_of(when),
                                             detail::slack_of(options), detail::name_of(options))) {
  }
  template <class Clock, class Duration>
  [[nodiscard("destroying the handle stops the timer: keep it, or detach() it")]] timer(
      runtime & rt, std::chrono::time_point<Clock, Duration> when, timer_options options = {})
      : timer(detail::start_channel_timer_at(detail::timers_of(rt), detail::count_of(when),
                                             detail::slack_of(options), detail::name_of(options))) {
  }

  void swap(timer & other) noexcept { node_.swap(other.node_); }

  /// The channel that receives the time at which the timer fired. Throws std::logic_error if the
  /// timer has a function instead.
  receiver<time_point> c() const { return detail::channel_of(node_.get()); }

  /// Returns true if the timer was pending: it will not fire. Returns false if it had fired or been
  /// stopped. No earlier value is received from c() afterwards: if the timer's value has not been
  /// received yet, it is discarded and the timer counts as pending.
  bool stop() { return detail::stop_timer(node_.get()); }

  /// Makes the timer fire once, `d` from now; any earlier setting is replaced. Returns true if it
  /// was pending. As with stop(), no stale value is received afterwards. Options are not kept: a
  /// reset without slack removes it, and one without precise makes the timer an ordinary one.
  template <class Rep, class Period>
  bool reset(std::chrono::duration<Rep, Period> d, timer_options options = {}) {
    return detail::reset_timer_after(node_.get(), saturate(d).count(), detail::slack_of(options));
  }
  /// The same for a time point of verge::clock or std::chrono::steady_clock.
  template <class Clock, class Duration>
  bool reset_at(std::chrono::time_point<Clock, Duration> when, timer_options options = {}) {
    return detail::reset_timer_at(node_.get(), detail::count_of(when), detail::slack_of(options));
  }

  /// Keeps the timer running without a handle. This handle is empty afterwards.
  void detach() { detail::detach_timer(node_.release()); }

  /// Returns whether the handle has a timer.
  explicit operator bool() const noexcept { return static_cast<bool>(node_); }

 private:
  friend detail::handle_access;
  explicit timer(detail::timer_node * node) noexcept : node_(node) {}

  detail::owned_timer node_;
};

/// Calls f after `d`, as a separate task: f may block without delaying other timers. About a
/// thousand callbacks may block at once; blocking inside verge::blocking() lifts that limit and
/// avoids the 10 ms it takes to detect a blocked worker. An exception thrown by f is passed to the
/// runtime's handler.
///
/// f takes no arguments. If it is a coroutine function, the coroutine is spawned detached, with a
/// copy of f: it continues after the handle is destroyed. Whatever f refers to must outlive it; to
/// end it, cancel a context that it waits under or close a channel that it reads.
template <class Rep, class Period, class F>
timer after_func(std::chrono::duration<Rep, Period> d, F&& f, timer_options options = {}) {
  return detail::handle_access::make<timer>(
      detail::start_func_timer(detail::timers_here(), saturate(d).count(), std::forward<F>(f),
                               detail::slack_of(options), detail::name_of(options)));
}
template <class Rep, class Period, class F>
timer after_func(runtime& rt, std::chrono::duration<Rep, Period> d, F&& f,
                 timer_options options = {}) {
  return detail::handle_access::make<timer>(
      detail::start_func_timer(detail::timers_of(rt), saturate(d).count(), std::forward<F>(f),
                               detail::slack_of(options), detail::name_of(options)));
}
/// The same at a time point of verge::clock or std::chrono::steady_clock.
template <class Clock, class Duration, class F>
timer after_func(std::chrono::time_point<Clock, Duration> when, F&& f, timer_options options = {}) {
  return detail::handle_access::make<timer>(
      detail::start_func_timer_at(detail::timers_here(), detail::count_of(when), std::forward<F>(f),
                                  detail::slack_of(options), detail::name_of(options)));
}
template <class Clock, class Duration, class F>
timer after_func(runtime& rt, std::chrono::time_point<Clock, Duration> when, F&& f,
                 timer_options options = {}) {
  return detail::handle_access::make<timer>(
      detail::start_func_timer_at(detail::timers_of(rt), detail::count_of(when), std::forward<F>(f),
                                  detail::slack_of(options), detail::name_of(options)));
}

/// Mistakes, each a compile-time error that says what to write.
template <class Number, class F>
requires std::is_arithmetic_v<Number> timer after_func(Number /*d*/, F&& /*f*/,
                                                       timer_options /*options*/ = {}) {
  static_assert(!std::is_same_v<Number, Number>, "a delay has a unit: after_func(5s, f)");
  return {};
}
template <class F, class Rep, class Period>
requires std::is_invocable_v<F> timer after_func(F&& /*f*/,
                                                 std::chrono::duration<Rep, Period> /*d*/,
                                                 timer_options /*options*/ = {}) {
  static_assert(!std::is_same_v<Rep, Rep>, "the delay comes first: after_func(5s, f)");
  return {};
}

/// Returns a channel that receives the time after `d`. Dropping the channel stops the timer.
template <class Rep, class Period>
[[nodiscard("dropping the channel stops the timer: receive from it")]] receiver<time_point> after(
    std::chrono::duration<Rep, Period> d, timer_options options = {}) {
  return detail::after_channel(detail::timers_here(), saturate(d).count(),
                               detail::slack_of(options), detail::name_of(options));
}
template <class Rep, class Period>
[[nodiscard("dropping the channel stops the timer: receive from it")]] receiver<time_point> after(
    runtime& rt, std::chrono::duration<Rep, Period> d, timer_options options = {}) {
  return detail::after_channel(detail::timers_of(rt), saturate(d).count(),
                               detail::slack_of(options), detail::name_of(options));
}

/// What a ticker does when its ticks are not received in time. Here the period is 10, and no
/// receive happens between 11 and 34; `>` is when a tick is received:
///
///     due     10        20        30        40        50
///     skip  > 10                      34(20)  40        50      one tick waits, the others are
///                                                               dropped; the grid is the same
///     burst > 10                34(20)34(30)  40        50      every tick arrives; late ones
///                                                               arrive at once
///     delay > 10                      34(20)      44        54  the next one is a full period
///                                                               after the late one is received
///
/// The number in brackets is the time that the tick carries.
enum class missed_ticks : std::uint8_t {
  skip,   ///< one late tick waits, the others are dropped
  burst,  ///< no tick is dropped: late ones arrive at once
  delay,  ///< the next tick is a full period after a late one
};

namespace detail {

/// A policy and whether the ticker is precise, as they are handed down.
constexpr std::uint8_t ticking(missed_ticks policy, const timer_options& options) noexcept {
  return static_cast<std::uint8_t>(static_cast<std::uint8_t>(policy) |
                                   (options.precise ? precise_ticks : 0));
}

}  // namespace detail

/// A timer that fires every period: it sends to its channel or calls its function.
///
/// Destroying the handle stops the ticker and waits for a call in progress on another thread. On an
/// empty handle, stop(), reset(), detach() and c() throw std::logic_error.
class [[nodiscard("destroying the handle stops the ticker: keep it, or detach() it")]] ticker {
 public:
  /// An empty handle.
  ticker() noexcept = default;

  /// Ticks every `period`; the first tick is one period from now. A ticker may be precise, and
  /// then stays so; slack is ignored. Throws std::invalid_argument if the period is zero or less.
  template <class Rep, class Period>
  [[nodiscard("destroying the handle stops the ticker: keep it, or detach() it")]] explicit ticker(
      std::chrono::duration<Rep, Period> period, missed_ticks policy = missed_ticks::skip,
      timer_options options = {})
      : ticker(detail::start_ticker(detail::timers_here(), saturate(period).count(),
                                    detail::ticking(policy, options), detail::name_of(options))) {}
  template <class Rep, class Period>
  [[nodiscard("destroying the handle stops the ticker: keep it, or detach() it")]] ticker(
      runtime & rt, std::chrono::duration<Rep, Period> period,
      missed_ticks policy = missed_ticks::skip, timer_options options = {})
      : ticker(detail::start_ticker(detail::timers_of(rt), saturate(period).count(),
                                    detail::ticking(policy, options), detail::name_of(options))) {}
  /// Ticks on an absolute grid: at start + n * period, from the first such time that has not
  /// passed. Tickers with the same start and period tick together, whenever each was made.
  template <class Clock, class Duration, class Rep, class Period>
  [[nodiscard("destroying the handle stops the ticker: keep it, or detach() it")]] ticker(
      std::chrono::time_point<Clock, Duration> start, std::chrono::duration<Rep, Period> period,
      missed_ticks policy = missed_ticks::skip, timer_options options = {})
      : ticker(detail::start_ticker_at(detail::timers_here(), detail::count_of(start),
                                       saturate(period).count(), detail::ticking(policy, options),
                                       detail::name_of(options))) {}
  template <class Clock, class Duration, class Rep, class Period>
  [[nodiscard("destroying the handle stops the ticker: keep it, or detach() it")]] ticker(
      runtime & rt, std::chrono::time_point<Clock, Duration> start,
      std::chrono::duration<Rep, Period> period, missed_ticks policy = missed_ticks::skip,
      timer_options options = {})
      : ticker(detail::start_ticker_at(detail::timers_of(rt), detail::count_of(start),
                                       saturate(period).count(), detail::ticking(policy, options),
                                       detail::name_of(options))) {}

  void swap(ticker & other) noexcept { node_.swap(other.node_); }

  /// The channel that receives the times of the ticks. Throws std::logic_error if the ticker has a
  /// function instead.
  receiver<time_point> c() const { return detail::channel_of(node_.get()); }

  /// Returns true if it was ticking. Afterwards no tick is received, not even one already sent, and
  /// no call of the function begins; a call may still be running.
  bool stop() { return detail::stop_timer(node_.get()); }

  /// Changes the period, counted from now. Returns true if it was ticking. If the period is zero or
  /// less, throws std::invalid_argument and changes nothing.
  template <class Rep, class Period>
  bool reset(std::chrono::duration<Rep, Period> period) {
    return detail::reset_ticker(node_.get(), saturate(period).count());
  }

  /// Keeps ticking without a handle: a function forever, a channel while it has a receiver.
  void detach() { detail::detach_timer(node_.release()); }
  explicit operator bool() const noexcept { return static_cast<bool>(node_); }

 private:
  friend detail::handle_access;
  explicit ticker(detail::timer_node * node) noexcept : node_(node) {}

  detail::owned_timer node_;
};

/// Calls f every `period`, on a fixed grid: a late call does not delay the next one. The calls do
/// not overlap, so f need not be safe to call from two threads at once. A tick that is due while a
/// call runs is kept or dropped according to `policy`, where "received" means "the call begins".
/// With skip, the default, one call follows at once and the other ticks are dropped.
///
/// f may be a coroutine function, as for after_func: the coroutines are spawned detached, may run
/// concurrently, and continue after the handle is destroyed. Throws std::invalid_argument if the
/// period is zero or less.
template <class Rep, class Period, class F>
ticker every(std::chrono::duration<Rep, Period> period, F&& f,
             missed_ticks policy = missed_ticks::skip, timer_options options = {}) {
  return detail::handle_access::make<ticker>(detail::make_function_ticker(
      detail::timers_here(), saturate(period).count(), std::forward<F>(f),
      detail::ticking(policy, options), detail::name_of(options)));
}
template <class Rep, class Period, class F>
ticker every(runtime& rt, std::chrono::duration<Rep, Period> period, F&& f,
             missed_ticks policy = missed_ticks::skip, timer_options options = {}) {
  return detail::handle_access::make<ticker>(detail::make_function_ticker(
      detail::timers_of(rt), saturate(period).count(), std::forward<F>(f),
      detail::ticking(policy, options), detail::name_of(options)));
}

/// The same on an absolute grid: f is called at start + n * period, beginning with the first such
/// time that has not passed; `start` is of verge::clock or std::chrono::steady_clock. So programs
/// on one machine that use the same start and period call together, and a program that is restarted
/// continues on the same grid. After a reset() the ticks are counted from that moment. With the
/// policy `delay` a late call moves the grid.
template <class Clock, class Duration, class Rep, class Period, class F>
ticker every(std::chrono::time_point<Clock, Duration> start,
             std::chrono::duration<Rep, Period> period, F&& f,
             missed_ticks policy = missed_ticks::skip, timer_options options = {}) {
  return detail::handle_access::make<ticker>(detail::make_function_ticker_at(
      detail::timers_here(), detail::count_of(start), saturate(period).count(), std::forward<F>(f),
      detail::ticking(policy, options), detail::name_of(options)));
}
template <class Clock, class Duration, class Rep, class Period, class F>
ticker every(runtime& rt, std::chrono::time_point<Clock, Duration> start,
             std::chrono::duration<Rep, Period> period, F&& f,
             missed_ticks policy = missed_ticks::skip, timer_options options = {}) {
  return detail::handle_access::make<ticker>(detail::make_function_ticker_at(
      detail::timers_of(rt), detail::count_of(start), saturate(period).count(), std::forward<F>(f),
      detail::ticking(policy, options), detail::name_of(options)));
}

/// Mistakes, each a compile-time error that says what to write.
template <class Number, class F>
requires std::is_arithmetic_v<Number> ticker every(Number /*period*/, F&& /*f*/,
                                                   missed_ticks /*policy*/ = missed_ticks::skip,
                                                   timer_options /*options*/ = {}) {
  static_assert(!std::is_same_v<Number, Number>, "a period has a unit: every(5s, f)");
  return {};
}
template <class F, class Rep, class Period>
requires std::is_invocable_v<F> ticker every(F&& /*f*/,
                                             std::chrono::duration<Rep, Period> /*period*/,
                                             missed_ticks /*policy*/ = missed_ticks::skip,
                                             timer_options /*options*/ = {}) {
  static_assert(!std::is_same_v<Rep, Rep>, "the period comes first: every(5s, f)");
  return {};
}

/// Returns the channel of a ticker without a handle: it ticks until the channel is dropped. If the
/// period is zero or less, the channel never delivers.
template <class Rep, class Period>
[[nodiscard("dropping the channel stops the ticker: receive from it")]] receiver<time_point> tick(
    std::chrono::duration<Rep, Period> period, timer_options options = {}) {
  return detail::tick_channel(detail::timers_here(), saturate(period).count(),
                              detail::ticking(missed_ticks::skip, options),
                              detail::name_of(options));
}
template <class Rep, class Period>
[[nodiscard("dropping the channel stops the ticker: receive from it")]] receiver<time_point> tick(
    runtime& rt, std::chrono::duration<Rep, Period> period, timer_options options = {}) {
  return detail::tick_channel(detail::timers_of(rt), saturate(period).count(),
                              detail::ticking(missed_ticks::skip, options),
                              detail::name_of(options));
}

/// Waits: `co_await verge::sleep(d)` in a coroutine, `verge::sleep(d).wait()` on a plain thread. A
/// runtime argument selects the timers and the clock; the caller resumes where it was. With slack a
/// sleep may take that much longer; a precise one ends to the microsecond.
template <class Rep, class Period>
detail::sleep_operation sleep(std::chrono::duration<Rep, Period> d,
                              timer_options options = {}) noexcept {
  return detail::sleep_operation::for_delay(saturate(d).count(), nullptr, detail::slack_of(options),
                                            detail::name_of(options));
}
template <class Rep, class Period>
detail::sleep_operation sleep(runtime& rt, std::chrono::duration<Rep, Period> d,
                              timer_options options = {}) {
  return detail::sleep_operation::for_delay(saturate(d).count(), &detail::timers_of(rt),
                                            detail::slack_of(options), detail::name_of(options));
}
/// A mistake, and a compile-time error that says what to write.
template <class Number>
requires std::is_arithmetic_v<Number> detail::sleep_operation sleep(Number /*d*/,
                                                                    timer_options /*options*/ = {})
noexcept {
  static_assert(!std::is_same_v<Number, Number>, "a sleep has a unit: sleep(5s)");
  return detail::sleep_operation::for_delay(0, nullptr, 0);
}
/// The same until a time point of verge::clock or std::chrono::steady_clock.
template <class Clock, class Duration>
detail::sleep_operation sleep_until(std::chrono::time_point<Clock, Duration> when,
                                    timer_options options = {}) noexcept {
  return detail::sleep_operation::until(detail::count_of(when), nullptr, detail::slack_of(options),
                                        detail::name_of(options));
}
template <class Clock, class Duration>
detail::sleep_operation sleep_until(runtime& rt, std::chrono::time_point<Clock, Duration> when,
                                    timer_options options = {}) {
  return detail::sleep_operation::until(detail::count_of(when), &detail::timers_of(rt),
                                        detail::slack_of(options), detail::name_of(options));
}

}  // namespace verge

#pragma GCC visibility pop
