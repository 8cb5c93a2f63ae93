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

#pragma GCC visibility push(default)

/// Timers.
///
///   auto reminder = verge::after_func(3min, [=] { remind(customer); });   // a callback, later
///   reminder.stop();                                        // true: it will never run
///   reminder.reset(1h, {.slack = 1s});                      // again; a little late will do
///
///   verge::timer t(30s);                                    // or a channel: t.c() gets the time
///   auto when = t.c().recv();
///
///   co_await verge::sleep(10ms);                            // in a coroutine
///   verge::sleep(10ms).wait();                              // on a plain thread
///
///   verge::ticker tk(100ms);                                // again and again
///   for (auto at : tk.c()) poll(at);
///
/// All of it works from any thread, on any timer, at any time; no timer is ever early. Delays may
/// be of any std::chrono unit: zero and negative ones are due at once, and one that leads past the
/// end of the clock never is.
///
/// The calls of one timer follow one another, each happens before the next: a function that counts
/// with a plain ++ is right. A timer that is reset while its function runs, and comes due, calls it
/// again when that call has ended; a ticker calls late or not at all, see missed_ticks. Calls of
/// different timers run at the same time. A function that wants to overlap with its own next call
/// spawns a task (verge/task.h).
///
/// A handle owns its timer. Destroying it stops the timer, waits for a callback that runs on
/// another thread - never for the one it is called from - and destroys what the callback has
/// captured. So no callback is called, or runs, once the handle is destroyed. detach() lets it go
/// on by itself. <verge/verge.h> has a table of what the other handles do.
///
/// With a runtime& as the first argument a timer is that runtime's; without one it is the calling
/// task's or callback's, on a plain thread the default runtime's.
///
/// The channel of a timer closes when the timer's runtime ends: receivers that wait are woken, and
/// recv() gives nothing. A channel whose timer no longer exists - an after() that has fired, a
/// timer whose handle was destroyed - stays open, and delivers nothing more.
///
/// A callback that is a coroutine function is called, and ends when it has spawned its coroutine.
/// The coroutine is a task of its own, which no handle waits for.
///
/// Deadlock. The destructor of a handle, and an assignment to it, wait for a callback that runs. So
/// does reset of a std::optional or std::unique_ptr with a timer in it, or erase of a map's
/// element. Do not do that while holding a mutex that the callback locks: the callback waits for
/// the mutex and the destructor for the callback. Move the handle out, and destroy it after the
/// unlock:
///
///   verge::timer old;
///   {
///     std::lock_guard held(mutex);
///     old = std::move(connection.idle);       // `old` was empty: nothing to wait for
///     old.stop();                             // does not wait
///   }                                         // `old` is destroyed without the mutex
///
/// For the same reason two callbacks that run at the same time must not destroy each other's
/// handle: let them stop() instead. A library that is built without NDEBUG reports a destructor
/// that has waited for a second, on standard error.
namespace verge {

using time_point = clock::time_point;

struct timer_options {
  /// How late the timer may be without anybody minding. Timers with slack fire together where they
  /// can, and so wake the machine less often: `after_func(30s, f, {.slack = 1s})`.
  std::chrono::nanoseconds slack{0};
};

/// A timer that fires once: into its channel, or by calling its function.
///
/// Destroying the handle stops the timer and waits for a call that runs on another thread. An empty
/// handle has no timer: stop(), reset(), reset_at(), detach() and c() throw std::logic_error.
class [[nodiscard("destroying the handle stops the timer: keep it, or detach() it")]] timer {
 public:
  /// No timer.
  timer() noexcept = default;

  /// Sends the time to c() when `d` has passed.
  template <class Rep, class Period>
  [[nodiscard("destroying the handle stops the timer: keep it, or detach() it")]] explicit timer(
      std::chrono::duration<Rep, Period> d, timer_options options = {})
      : timer(detail::start_channel_timer(detail::timers_here(), saturate(d).count(),
                                          options.slack.count())) {}
  template <class Rep, class Period>
  [[nodiscard("destroying the handle stops the timer: keep it, or detach() it")]] timer(
      runtime & rt, std::chrono::duration<Rep, Period> d, timer_options options = {})
      : timer(detail::start_channel_timer(detail::timers_of(rt), saturate(d).count(),
                                          options.slack.count())) {}
  /// The same at a point in time, of verge::clock or std::chrono::steady_clock.
  template <class Clock, class Duration>
  [[nodiscard("destroying the handle stops the timer: keep it, or detach() it")]] explicit timer(
      std::chrono::time_point<Clock, Duration> when, timer_options options = {})
      : timer(detail::start_channel_timer_at(detail::timers_here(), detail::count_of(when),
                                             options.slack.count())) {}
  template <class Clock, class Duration>
  [[nodiscard("destroying the handle stops the timer: keep it, or detach() it")]] timer(
      runtime & rt, std::chrono::time_point<Clock, Duration> when, timer_options options = {})
      : timer(detail::start_channel_timer_at(detail::timers_of(rt), detail::count_of(when),
                                             options.slack.count())) {}

  void swap(timer & other) noexcept { node_.swap(other.node_); }

  /// The channel that the time at which the timer fired is sent to. Throws std::logic_error if the
  /// timer has a function instead.
  receiver<time_point> c() const { return detail::channel_of(node_.get()); }

  /// True if the timer was pending: then it will not fire. False if it has fired or been stopped
  /// before. Nothing that was sent before is received from c() afterwards: a time that nobody has
  /// received by now counts as not fired.
  bool stop() { return detail::stop_timer(node_.get()); }

  /// Makes it fire, once, when `d` has passed from now, whatever it was going to do before. True if
  /// it was pending. As with stop(), nothing stale is received afterwards. Options are not kept: a
  /// reset without slack takes any slack away.
  template <class Rep, class Period>
  bool reset(std::chrono::duration<Rep, Period> d, timer_options options = {}) {
    return detail::reset_timer_after(node_.get(), saturate(d).count(), options.slack.count());
  }
  /// The same for a point in time, of verge::clock or std::chrono::steady_clock.
  template <class Clock, class Duration>
  bool reset_at(std::chrono::time_point<Clock, Duration> when, timer_options options = {}) {
    return detail::reset_timer_at(node_.get(), detail::count_of(when), options.slack.count());
  }

  /// Lets the timer go on without a handle. The handle has no timer afterwards.
  void detach() { detail::detach_timer(node_.release()); }

  /// Whether there is a timer.
  explicit operator bool() const noexcept { return static_cast<bool>(node_); }

 private:
  friend detail::handle_access;
  explicit timer(detail::timer_node * node) noexcept : node_(node) {}

  detail::owned_timer node_;
};

/// Calls f when `d` has passed, as a task of its own: f may block without holding up other timers.
/// About a thousand may block at once; a call through verge::blocking() lifts that limit, and saves
/// the 10 ms that it takes to notice. An exception that leaves f is passed to the runtime's
/// handler.
///
/// f takes no arguments. If it is a coroutine function the coroutine is spawned, detached, with a
/// copy of f: it runs on after the handle is destroyed. What f refers to must last as long; to end
/// it, cancel a context that it waits under or close a channel that it reads.
template <class Rep, class Period, class F>
timer after_func(std::chrono::duration<Rep, Period> d, F&& f, timer_options options = {}) {
  return detail::handle_access::make<timer>(detail::start_func_timer(
      detail::timers_here(), saturate(d).count(), std::forward<F>(f), options.slack.count()));
}
template <class Rep, class Period, class F>
timer after_func(runtime& rt, std::chrono::duration<Rep, Period> d, F&& f,
                 timer_options options = {}) {
  return detail::handle_access::make<timer>(detail::start_func_timer(
      detail::timers_of(rt), saturate(d).count(), std::forward<F>(f), options.slack.count()));
}
/// The same at a point in time, of verge::clock or std::chrono::steady_clock.
template <class Clock, class Duration, class F>
timer after_func(std::chrono::time_point<Clock, Duration> when, F&& f, timer_options options = {}) {
  return detail::handle_access::make<timer>(detail::start_func_timer_at(
      detail::timers_here(), detail::count_of(when), std::forward<F>(f), options.slack.count()));
}
template <class Clock, class Duration, class F>
timer after_func(runtime& rt, std::chrono::time_point<Clock, Duration> when, F&& f,
                 timer_options options = {}) {
  return detail::handle_access::make<timer>(detail::start_func_timer_at(
      detail::timers_of(rt), detail::count_of(when), std::forward<F>(f), options.slack.count()));
}

/// A channel that gets the time when `d` has passed. Dropping the channel stops the timer.
template <class Rep, class Period>
[[nodiscard("dropping the channel stops the timer: receive from it")]] receiver<time_point> after(
    std::chrono::duration<Rep, Period> d) {
  return detail::after_channel(detail::timers_here(), saturate(d).count());
}
template <class Rep, class Period>
[[nodiscard("dropping the channel stops the timer: receive from it")]] receiver<time_point> after(
    runtime& rt, std::chrono::duration<Rep, Period> d) {
  return detail::after_channel(detail::timers_of(rt), saturate(d).count());
}

/// What a ticker does when its ticks are not taken in time. Here it ticks every 10, and nobody
/// receives between 11 and 34; `>` is when a tick is received:
///
///   due     10        20        30        40        50
///   skip  > 10                      34(20)  40        50      one tick waits, the others are
///                                                             gone; the grid stays as it was
///   burst > 10                34(20)34(30)  40        50      every tick arrives, late ones at
///                                                             once
///   delay > 10                      34(20)      44        54  the next one comes a full period
///                                                             after the late one was taken
///
/// The number in brackets is the time that the tick carries.
enum class missed_ticks : std::uint8_t { skip, burst, delay };

/// A timer that fires every period: into its channel, or by calling its function.
///
/// Destroying the handle stops the ticker and waits for a call that runs on another thread. An
/// empty handle has no ticker: stop(), reset(), detach() and c() throw std::logic_error.
class [[nodiscard("destroying the handle stops the ticker: keep it, or detach() it")]] ticker {
 public:
  /// No ticker.
  ticker() noexcept = default;

  /// Ticks every `period`, for the first time when one has passed. Throws std::invalid_argument if
  /// that is zero or less.
  template <class Rep, class Period>
  [[nodiscard("destroying the handle stops the ticker: keep it, or detach() it")]] explicit ticker(
      std::chrono::duration<Rep, Period> period, missed_ticks policy = missed_ticks::skip)
      : ticker(detail::start_ticker(detail::timers_here(), saturate(period).count(),
                                    static_cast<std::uint8_t>(policy))) {}
  template <class Rep, class Period>
  [[nodiscard("destroying the handle stops the ticker: keep it, or detach() it")]] ticker(
      runtime & rt, std::chrono::duration<Rep, Period> period,
      missed_ticks policy = missed_ticks::skip)
      : ticker(detail::start_ticker(detail::timers_of(rt), saturate(period).count(),
                                    static_cast<std::uint8_t>(policy))) {}

  void swap(ticker & other) noexcept { node_.swap(other.node_); }

  receiver<time_point> c() const { return detail::channel_of(node_.get()); }

  /// True if it was ticking. No tick is received after that, not even one that was waiting, and no
  /// call of the function begins; one may be running.
  bool stop() { return detail::stop_timer(node_.get()); }

  /// Ticks with another period from now on. True if it was ticking. Throws std::invalid_argument if
  /// the period is zero or less, and goes on as before.
  template <class Rep, class Period>
  bool reset(std::chrono::duration<Rep, Period> period) {
    return detail::reset_ticker(node_.get(), saturate(period).count());
  }

  /// Lets it tick on: a function for good, a channel for as long as somebody has a receiver of it.
  void detach() { detail::detach_timer(node_.release()); }
  explicit operator bool() const noexcept { return static_cast<bool>(node_); }

 private:
  friend detail::handle_access;
  explicit ticker(detail::timer_node * node) noexcept : node_(node) {}

  detail::owned_timer node_;
};

/// Calls f every `period`, on a grid: a late call does not make the next one late. The calls follow
/// one another: f need not be safe to call from two threads at once. A tick that comes while a call
/// runs is kept or dropped as `policy` says; "received" means "the call begins". With skip, the
/// default, one call follows right after, and the other ticks are dropped.
///
/// A coroutine function is taken as by after_func: the coroutines are spawned, detached, may run at
/// the same time, and run on after the handle is destroyed. Throws std::invalid_argument if the
/// period is zero or less.
template <class Rep, class Period, class F>
ticker every(std::chrono::duration<Rep, Period> period, F&& f,
             missed_ticks policy = missed_ticks::skip) {
  return detail::handle_access::make<ticker>(
      detail::make_function_ticker(detail::timers_here(), saturate(period).count(),
                                   std::forward<F>(f), static_cast<std::uint8_t>(policy)));
}
template <class Rep, class Period, class F>
ticker every(runtime& rt, std::chrono::duration<Rep, Period> period, F&& f,
             missed_ticks policy = missed_ticks::skip) {
  return detail::handle_access::make<ticker>(
      detail::make_function_ticker(detail::timers_of(rt), saturate(period).count(),
                                   std::forward<F>(f), static_cast<std::uint8_t>(policy)));
}

/// The channel of a ticker that needs no handle: it ticks until the channel is dropped. A period of
/// zero or less gives a channel that never delivers.
template <class Rep, class Period>
[[nodiscard("dropping the channel stops the ticker: receive from it")]] receiver<time_point> tick(
    std::chrono::duration<Rep, Period> period) {
  return detail::tick_channel(detail::timers_here(), saturate(period).count());
}
template <class Rep, class Period>
[[nodiscard("dropping the channel stops the ticker: receive from it")]] receiver<time_point> tick(
    runtime& rt, std::chrono::duration<Rep, Period> period) {
  return detail::tick_channel(detail::timers_of(rt), saturate(period).count());
}

/// Waits: `co_await verge::sleep(d)` in a coroutine, `verge::sleep(d).wait()` on a plain thread.
/// With a runtime, its timers and its clock are used; the caller goes on where it was.
template <class Rep, class Period>
detail::sleep_operation sleep(std::chrono::duration<Rep, Period> d) noexcept {
  return detail::sleep_operation::for_delay(saturate(d).count());
}
template <class Rep, class Period>
detail::sleep_operation sleep(runtime& rt, std::chrono::duration<Rep, Period> d) {
  return detail::sleep_operation::for_delay(saturate(d).count(), &detail::timers_of(rt));
}
template <class Clock, class Duration>
detail::sleep_operation sleep_until(std::chrono::time_point<Clock, Duration> when) noexcept {
  return detail::sleep_operation::until(detail::count_of(when));
}
template <class Clock, class Duration>
detail::sleep_operation sleep_until(runtime& rt, std::chrono::time_point<Clock, Duration> when) {
  return detail::sleep_operation::until(detail::count_of(when), &detail::timers_of(rt));
}

}  // namespace verge

#pragma GCC visibility pop
