// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

#include <verge/detail/operation.h>
#include <verge/task.h>

#pragma GCC visibility push(default)

/// What timeout() and under() have in common: an operation, or a task, that a *limit* may end.
///
/// A limit is a copyable description, and what a wait under it does is its class `watch`, which
/// lives as long as the wait:
///
///   struct a_limit {
///     void begin() const;                    // throws if a task is not to begin under it
///     handle alarm(F f) const;               // calls f when it is reached; the handle has stop()
///     [[noreturn]] void fail() const;        // throws the error for a limit that was reached
///
///     class watch {
///      public:
///       explicit watch(const a_limit&);      // the limit stays where it is while the wait lasts
///       bool reached() noexcept;             // before it begins: nothing is to be tried
///       bool start(waiter&, std::uint32_t ticket) noexcept;  // false: reached, or cannot be kept
///       void pause() noexcept;               // lets go of the waiter; start() may follow
///       void stop() noexcept;                // lets go of the waiter for good
///       bool kept() const noexcept;          // false: start() failed for another reason
///       std::error_code why() const noexcept;
///       [[noreturn]] void fail();            // why it is not kept(), or the limit's fail()
///     };
///   };
///
/// Every limit on a wait has a ticket of its own, by its depth. So the one winner of the wait says
/// which of several limits, one inside the other, has ended it.
namespace verge::detail {

template <class A>
concept is_operation = requires {
  typename std::remove_cvref_t<A>::action;
};

/// How many limits there are inside an operation's action.
template <class Action>
inline constexpr std::uint32_t limits_of = 0;
template <class Action>
requires requires { Action::limits; }
inline constexpr std::uint32_t limits_of<Action> = Action::limits;

template <class Limit, class Op>
class limited_operation;

template <class Limit, class Op>
class limited_action {
  using inner = typename std::remove_reference_t<Op>::action;
  using result = decltype(std::declval<inner&>().finish(0));

 public:
  static constexpr const char* waiting_for = inner::waiting_for;
  static constexpr bool cancellable = inner::cancellable;
  static constexpr std::uint32_t share = share_of_turn<inner>;
  static constexpr std::uint32_t limits = limits_of<inner> + 1;

  explicit limited_action(limited_operation<Limit, Op>& op) : watch_(op.limit_), inner_(op.op_) {}

  bool start(waiter& w) noexcept {
    // Started once more it takes what has come, whatever the limit says by now.
    if (!started_ && watch_.reached()) {
      over_ = true;
      return false;
    }
    started_ = inner_.start(w);
    if (!started_ || watch_.start(w, by_limit)) return started_;
    // The limit is reached as the wait begins - unless what is waited for was faster, and wakes us.
    over_ = w.claim(by_limit);
    return !over_;
  }
  void withdraw() noexcept {
    watch_.stop();
    inner_.withdraw();
  }
  void again() noexcept requires retrying_operation<inner> {
    watch_.pause();
    inner_.again();
  }
  result finish(std::uint32_t winner) {
    watch_.stop();
    if (!over_ && winner != by_limit) return inner_.finish(winner);
    if constexpr (reporting_operation<inner>) {
      if (watch_.kept() || inner_.has_moved()) return inner_.give_up(watch_.why());
    }
    if (started_) inner_.withdraw();
    watch_.fail();
  }

  bool has_moved() const noexcept requires reporting_operation<inner> { return inner_.has_moved(); }
  result give_up(std::error_code why) noexcept requires reporting_operation<inner> {
    watch_.stop();
    return inner_.give_up(why);
  }

 private:
  static constexpr std::uint32_t by_limit = waiter::by_limit + limits;

  typename Limit::watch watch_;
  inner inner_;
  bool started_{false};
  bool over_{false};
};

/// Op is a class, or a reference to one that cannot be copied: a join_handle that its owner wants
/// to keep.
template <class Limit, class Op>
class [[nodiscard("co_await it, or call wait()")]] limited_operation
    : public awaitable<limited_operation<Limit, Op>> {
 public:
  using action = limited_action<Limit, Op>;
  limited_operation(Limit limit, Op op) : limit_(std::move(limit)), op_(std::forward<Op>(op)) {}

 private:
  friend action;
  Limit limit_;
  Op op_;
};

template <class Limit, class Op>
auto limited(Limit limit, Op&& op) {
  using held = std::conditional_t<std::copy_constructible<std::remove_cvref_t<Op>>,
                                  std::remove_cvref_t<Op>, Op>;
  return limited_operation<Limit, held>(std::move(limit), std::forward<Op>(op));
}

/// Runs `work`, and cancels it when the limit is reached.
template <class T, class Limit>
task<T> limited_task(Limit limit, task<T> work) {
  limit.begin();
  join_handle<T> h = go(std::move(work));
  const auto cancel = [&h] { h.cancel(); };
  // Destroyed before the handle, which its callback uses; its destructor waits for the callback.
  std::optional<decltype(limit.alarm(cancel))> alarm;
  std::exception_ptr no_alarm;
  try {
    alarm.emplace(limit.alarm(cancel));
  } catch (...) {
    no_alarm = std::current_exception();
    h.cancel();  // without its limit it is not to run, and it ends before this one does
  }
  try {
    co_await end_of(h);
  } catch (const cancelled&) {
    h.cancel();  // this task was cancelled, and takes the other one with it
  }
  if (no_alarm) {
    try {
      static_cast<void>(co_await shielded_join(h));
    } catch (...) {  // the caller learns instead that there was no limit
    }
    std::rethrow_exception(no_alarm);
  }
  try {
    co_return co_await shielded_join(h);
  } catch (const cancelled&) {
    if (alarm->stop()) throw;  // it was not the limit
  }
  limit.fail();
}

}  // namespace verge::detail

#pragma GCC visibility pop
