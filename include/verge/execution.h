// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexec/execution.hpp>
#if __has_include(<exec/timed_scheduler.hpp>)
#include <exec/timed_scheduler.hpp>
#endif

#include <atomic>
#include <chrono>
#include <concepts>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include <verge/clock.h>
#include <verge/duration.h>
#include <verge/runtime.h>
#include <verge/time.h>

#pragma GCC visibility push(default)

/// A timed scheduler for senders and receivers, as stdexec implements them.
///
///   verge::timed_scheduler s;                               // or {rt}, for a runtime of your own
///   auto at = s.schedule_at(s.now() + 1min);                // a sender, for any algorithm
///   auto work = stdexec::connect(s.schedule_after(30s), done{});
///   stdexec::start(work);
///
/// The senders complete on a worker of the runtime, never early: with set_value(), with
/// set_stopped() if the receiver's stop token asks for that first, or with set_error(exception_ptr)
/// if there is no memory for the timer. A stop request that comes in time stops the timer and
/// completes on the thread that makes the request; then no callback of the timer runs.
///
/// If <exec/timed_scheduler.hpp> is there, exec::now, exec::schedule_after and exec::schedule_at
/// find the scheduler as well.
///
/// Not part of <verge/verge.h>, as it needs stdexec's headers.
namespace verge {

class timed_scheduler;

namespace detail {

/// Ground rules
///
/// `left_` counts what must arrive before the operation completes: the end of start(), and either
/// the timer's call or a stop request whose stop() of the timer returned true. The timer gives
/// exactly one of the two. The last to arrive completes the operation; all before it have done
/// their last access, since completing may destroy the operation.
template <class Receiver>
class timed_operation {
 public:
  using operation_state_concept = stdexec::operation_state_t;

  timed_operation(runtime* rt, clock::time_point when, std::optional<clock::duration> delay,
                  Receiver r)
      : runtime_(rt), when_(when), delay_(delay), receiver_(std::move(r)) {}
  timed_operation(timed_operation&&) = delete;

  void start() & noexcept {
    const auto token = stdexec::get_stop_token(stdexec::get_env(receiver_));
    try {
      timer_ = start_timer();
      // Calls at once if a stop was requested before.
      on_stop_.emplace(token, stop_request{this});
    } catch (...) {
      // No stop callback exists. The timer may have fired, and then arrives as well.
      if (timer_ && !timer_.stop()) return arrive();
      return stdexec::set_error(std::move(receiver_), std::current_exception());
    }
    arrive();
  }

 private:
  struct stop_request {
    timed_operation* self;
    void operator()() const noexcept {
      timed_operation& op = *self;
      if (!op.timer_.stop()) return;
      op.stopped_ = true;
      op.arrive();
    }
  };
  using stop_token =
      std::decay_t<decltype(stdexec::get_stop_token(stdexec::get_env(std::declval<Receiver&>())))>;

  timer start_timer() {
    const auto call = [this] { arrive(); };
    if (!delay_)
      return runtime_ != nullptr ? after_func(*runtime_, when_, call) : after_func(when_, call);
    return runtime_ != nullptr ? after_func(*runtime_, *delay_, call) : after_func(*delay_, call);
  }

  void arrive() noexcept {
    // Release what this thread did, acquire what the others did.
    if (left_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    // Waits for a stop request in progress on another thread: its stop() returned false.
    on_stop_.reset();
    if (stopped_) {
      stdexec::set_stopped(std::move(receiver_));
    } else {
      stdexec::set_value(std::move(receiver_));
    }
  }

  runtime* runtime_;
  clock::time_point when_;
  std::optional<clock::duration> delay_;
  Receiver receiver_;
  timer timer_;
  std::optional<stdexec::stop_callback_for_t<stop_token, stop_request>> on_stop_;
  std::atomic<int> left_{2};
  bool stopped_ = false;
};

class timed_sender {
 public:
  using sender_concept = stdexec::sender_t;
  using completion_signatures =
      stdexec::completion_signatures<stdexec::set_value_t(), stdexec::set_stopped_t(),
                                     stdexec::set_error_t(std::exception_ptr)>;

  timed_sender(runtime* rt, clock::time_point when, std::optional<clock::duration> delay) noexcept
      : runtime_(rt), when_(when), delay_(delay) {}

  template <class Receiver>
  timed_operation<std::decay_t<Receiver>> connect(Receiver&& r) const {
    return {runtime_, when_, delay_, std::forward<Receiver>(r)};
  }

  struct env {
    runtime* rt;
    template <class Completion>
    timed_scheduler query(stdexec::get_completion_scheduler_t<Completion> /*q*/) const noexcept;
  };
  [[nodiscard]] env get_env() const noexcept { return {runtime_}; }

 private:
  runtime* runtime_;
  clock::time_point when_;
  std::optional<clock::duration> delay_;  ///< counted from start(); otherwise `when_`
};

}  // namespace detail

/// A scheduler whose operations complete on a runtime, now or at a time.
class timed_scheduler {
 public:
  using scheduler_concept = stdexec::scheduler_t;  ///< it is a scheduler
  using time_point = clock::time_point;            ///< a time on the clock of all timers
  using duration = clock::duration;                ///< nanoseconds

  /// Of the runtime of the thread that starts the operation, or of the default runtime.
  timed_scheduler() noexcept = default;
  explicit timed_scheduler(runtime& rt) noexcept : runtime_(&rt) {}

  /// The time by which schedule_at() goes.
  [[nodiscard]] static time_point now() noexcept { return clock::now(); }
  /// Completes at once, on a worker.
  [[nodiscard]] detail::timed_sender schedule() const noexcept {
    return {runtime_, {}, duration()};
  }
  /// Completes `d` after the operation is started. A zero or negative `d` is due at once, one past
  /// the end of the clock never.
  template <class Rep, class Period>
  [[nodiscard]] detail::timed_sender schedule_after(
      std::chrono::duration<Rep, Period> d) const noexcept {
    return {runtime_, {}, saturate(d)};
  }
  /// Completes at `when`.
  [[nodiscard]] detail::timed_sender schedule_at(time_point when) const noexcept {
    return {runtime_, when, std::nullopt};
  }

  friend bool operator==(const timed_scheduler&, const timed_scheduler&) = default;

#if __has_include(<exec/timed_scheduler.hpp>)
  friend time_point tag_invoke(exec::now_t /*cpo*/, const timed_scheduler& s) noexcept {
    return s.now();
  }
  friend detail::timed_sender tag_invoke(exec::schedule_after_t /*cpo*/, const timed_scheduler& s,
                                         duration d) noexcept {
    return s.schedule_after(d);
  }
  friend detail::timed_sender tag_invoke(exec::schedule_at_t /*cpo*/, const timed_scheduler& s,
                                         time_point when) noexcept {
    return s.schedule_at(when);
  }
#endif

 private:
  runtime* runtime_ = nullptr;
};

template <class Completion>
timed_scheduler detail::timed_sender::env::query(
    stdexec::get_completion_scheduler_t<Completion> /*q*/) const noexcept {
  return rt != nullptr ? timed_scheduler(*rt) : timed_scheduler();
}

}  // namespace verge

#pragma GCC visibility pop
