#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <type_traits>
#include <utility>

#include <verge/detail/operation.h>
#include <verge/detail/sleep.h>
#include <verge/duration.h>
#include <verge/task.h>
#include <verge/time.h>

#pragma GCC visibility push(default)

/// A limit on how long anything may take.
///
///   auto message = co_await verge::timeout(verge::recv(ch), 50ms);   // throws verge::timed_out
///   verge::timeout(verge::recv(ch), 50ms).wait();                    // on a plain thread
///   auto reply = co_await verge::timeout(call(server), 2s);          // a task, too
///
/// An operation - recv, send, select, a join - that does not take place in time is withdrawn: it
/// has not happened. One that can take place at once does so, whatever the limit.
///
/// A task that does not end in time is cancelled: what it waits in throws verge::cancelled inside
/// it. The timeout is over when the task has ended, so nothing of it goes on behind the caller's
/// back; a task that computes on must look at verge::is_cancelled() itself.
namespace verge {

/// Thrown by what was not done in time.
class timed_out : public std::exception {
 public:
  const char* what() const noexcept override;
};

namespace detail {

[[noreturn]] void throw_timed_out();

template <class Op>
class timeout_operation;

template <class Op>
class timeout_action {
 public:
  static constexpr const char* waiting_for = Op::action::waiting_for;
  static constexpr bool cancellable = Op::action::cancellable;

  explicit timeout_action(timeout_operation<Op>& op)
      : limit_(sleep_operation::for_delay(op.limit_)), inner_(op.op_) {}

  bool start(waiter& w) noexcept {
    if (!inner_.start(w)) return false;
    if (limited_ ? limit_.resume(w) : limit_.start(w, by_limit)) return limited_ = true;
    // The time is up as it begins, or the limit cannot be kept - unless what is waited for was
    // faster, and wakes us.
    expired_ = w.claim(by_limit);
    return !expired_;
  }
  void withdraw() noexcept {
    if (limited_) limit_.withdraw();
    inner_.withdraw();
  }
  void again() noexcept requires retrying_operation<typename Op::action> {
    if (limited_) limit_.pause();
    inner_.again();
  }
  decltype(auto) finish(std::uint32_t winner) {
    if (limited_) limit_.withdraw();
    if (expired_ || winner == by_limit) {
      inner_.withdraw();
      limit_.finish(winner);  // throws if it was not the time that ended it
      throw_timed_out();
    }
    return inner_.finish(winner);
  }

 private:
  static constexpr std::uint32_t by_limit = waiter::by_owner - 1;

  sleep_action limit_;
  typename Op::action inner_;
  bool limited_{false};
  bool expired_{false};
};

template <class Op>
class [[nodiscard("co_await it, or wait() for it")]] timeout_operation
    : public awaitable<timeout_operation<Op>> {
 public:
  using action = timeout_action<Op>;
  timeout_operation(Op op, std::int64_t limit) : op_(std::move(op)), limit_(limit) {}

 private:
  friend action;
  Op op_;
  std::int64_t limit_;
};

/// Runs `work`, and cancels it when the limit is reached. A limit says whether work may begin(),
/// sets an alarm() - a handle with stop(), as of after_func - and throws what it is to have reached
/// it.
template <class T, class Limit>
task<T> limited_task(Limit limit, task<T> work) {
  limit.begin();
  join_handle<T> h = go(std::move(work));
  // Goes before the handle does, and waits for its callback then.
  auto alarm = limit.alarm([&h] { h.cancel(); });
  try {
    co_await end_of(h);
  } catch (const cancelled&) {
    h.cancel();  // this task was cancelled, and takes the other one with it
  }
  try {
    co_return co_await shielded_join(h);
  } catch (const cancelled&) {
    if (alarm.stop()) throw;  // it was not the limit
  }
  limit.fail();
}

struct time_limit {
  std::chrono::nanoseconds length;

  /// However short the time: what can be done at once is done.
  void begin() const noexcept {}
  template <class F>
  timer alarm(F f) const {
    return after_func(length, std::move(f));
  }
  [[noreturn]] void fail() const { throw_timed_out(); }
};

template <class A>
concept is_operation = requires {
  typename std::remove_cvref_t<A>::action;
};

}  // namespace detail

/// Does `op`, or throws timed_out when `limit` has passed.
template <detail::is_operation Op, class Rep, class Period>
auto timeout(Op&& op, std::chrono::duration<Rep, Period> limit) {
  return detail::timeout_operation<std::remove_cvref_t<Op>>(std::forward<Op>(op),
                                                            saturate(limit).count());
}
/// Runs `work`, and cancels it when `limit` has passed.
template <class T, class Rep, class Period>
task<T> timeout(task<T> work, std::chrono::duration<Rep, Period> limit) {
  return detail::limited_task(detail::time_limit{saturate(limit)}, std::move(work));
}

}  // namespace verge

#pragma GCC visibility pop
