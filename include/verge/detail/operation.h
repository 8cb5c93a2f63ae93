// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <coroutine>
#include <cstdint>
#include <system_error>
#include <utility>

#include <verge/detail/errors.h>
#include <verge/detail/scheduling.h>

#pragma GCC visibility push(default)

/// How everything that waits is written: once, for coroutines and for threads, cancellable.
///
/// A receive, a send, a select, a join, a sleep is an *operation*: a class that knows how to start,
/// how to be withdrawn and what its result is, and nothing of waiters or of cancellation. Those are
/// here. To make an operation that a user can write `co_await` or `.wait()` for, derive what the
/// user holds from awaitable:
///
///   class nap : public detail::awaitable<nap> {
///    public:
///     class action {                                   // lives while the wait lasts, never moves
///      public:
///       static constexpr const char* waiting_for = "nap";       // for reports
///       static constexpr bool cancellable = true;
///       explicit action(nap&);
///       bool start(detail::waiter&) noexcept;          // false: done, nothing to wait for
///       void withdraw() noexcept;                      // cancelled: leave all that start() joined
///       int finish(std::uint32_t winner);              // the result; may throw
///     };
///   };
///
/// Ground rules
///  - start() registers the waiter with events, or finds that it need not wait. The wake-up may
///    come while it still runs, but the waiter does not continue before it has returned.
///  - After start() returned true, exactly one of finish(ticket of the event that won) and
///    withdraw() is called, when no more wake-up can come. Either leaves no event that knows the
///    waiter. After start() returned false, finish(waiter::no_event) is called.
///  - An operation may be woken by a hint (waiter::by_hint): that it is worth another try, as an
///    event of epoll is. One that has again() is then asked to take the waiter off the events that
///    still know it, and started once more, until it need not wait or another event wins. That
///    happens before the coroutine is resumed, on the worker that would have resumed it. An
///    operation that wraps such a one passes again() on.
///  - A task that has been cancelled throws `cancelled` when it starts any operation; one that
///    waits stops waiting and throws. If the operation's own event was faster, the operation is
///    done and returns its result, so nothing that was received is lost; the next one throws.
///  - A coroutine whose operation need not wait continues at once, but only so many times in one
///    turn of its task (operations_per_turn). Then the operation is done, and the coroutine is put
///    at the end of the queue with its result. Threads that wait() are preempted by the kernel
///    instead.
///  - An operation whose result carries an error, and that may have done a part of its work while
///    it waits, has give_up() besides withdraw(): it gives that part as its result. A limit
///    (limit.h) always calls it; a cancelled task does if has_moved(), and throws if not.
namespace verge::detail {

template <class Op>
concept operation = requires(Op op, waiter& w, std::uint32_t winner) {
  { Op::waiting_for } -> std::convertible_to<const char*>;
  { Op::cancellable } -> std::convertible_to<bool>;
  { op.start(w) }
  noexcept->std::same_as<bool>;
  { op.withdraw() }
  noexcept;
  op.finish(winner);
};

/// One that may be woken by a hint, and starts again.
template <class Op>
concept retrying_operation = operation<Op> && requires(Op op) {
  { op.again() }
  noexcept;
};

/// One whose result carries an error, so that it can be given up and tell what it has done.
/// give_up() is called in place of withdraw(), and may be called in place of start().
template <class Op>
concept reporting_operation = operation<Op> && requires(Op op, std::error_code why) {
  { op.has_moved() }
  noexcept->std::same_as<bool>;  ///< whether a part of it has been done
  { op.give_up(why) }
  noexcept->std::same_as<decltype(op.finish(0))>;
};

/// What an operation that need not wait takes of its task's turn: as much as it says, or 1.
template <class Op>
inline constexpr std::uint32_t share_of_turn = 1;
template <class Op>
requires requires { Op::share; }
inline constexpr std::uint32_t share_of_turn<Op> = Op::share;

/// One wait for an operation, by whatever kind of waiter.
template <operation Op, class Waiter>
class wait_for {
 public:
  template <class... Args>
  wait_for(job* j, Waiter& w, Args&&... args)
      : op_(std::forward<Args>(args)...), waiter_(w), job_(j) {}

  void throw_if_cancelled() const {
    if constexpr (Op::cancellable)
      if (job_ != nullptr && job_->cancellation.fired()) [[unlikely]]
        throw_cancelled();
  }

  /// Whether there is something to wait for.
  bool begin() noexcept {
    if (!op_.start(waiter_)) return false;
    waiting_ = true;
    if (job_ == nullptr) return true;
    job_->waiting_since.store(coarse_now.load(std::memory_order_relaxed),
                              std::memory_order_relaxed);
    job_->waiting_in.store(waiter_.code(), std::memory_order_relaxed);
    job_->waiting_for.store(Op::waiting_for, std::memory_order_relaxed);
    if constexpr (Op::cancellable) {
      // Only now, so that what need not wait does not pay for this. If the task was cancelled since
      // it looked, it claims its waiter itself; where that fails, an event was faster.
      if (!job_->cancellation.subscribe(waiter_) && job_->cancellation.fired())
        return !waiter_.claim(waiter::by_cancellation);
    }
    return true;
  }

  /// After a wake-up: whether it was a hint, so that the next thing is to begin once more.
  bool again() noexcept {
    if constexpr (retrying_operation<Op>) {
      if (waiter_.winner() != waiter::by_hint) return false;
      leave();
      op_.again();
      waiter_.rearm();
      return true;
    } else {
      return false;
    }
  }

  decltype(auto) end() {
    if (!waiting_) return op_.finish(waiter::no_event);
    leave();
    const std::uint32_t winner = waiter_.winner();
    if (winner == waiter::by_cancellation) [[unlikely]] {
      if constexpr (reporting_operation<Op>)
        if (op_.has_moved()) return op_.give_up(cancelled_error());
      op_.withdraw();
      throw_cancelled();
    }
    if constexpr (std::same_as<Waiter, thread_waiter>) {
      if (winner == waiter::by_deadlock) [[unlikely]] {
        op_.withdraw();
        throw_deadlock();
      }
    }
    return op_.finish(winner);
  }

  /// For a waiter that is destroyed and not woken.
  bool is_waiting() const noexcept { return waiting_; }
  void give_up() noexcept {
    leave();
    op_.withdraw();
  }

 private:
  void leave() noexcept {
    waiting_ = false;
    if (job_ == nullptr) return;
    job_->waiting_for.store(nullptr, std::memory_order_relaxed);
    if constexpr (Op::cancellable) job_->cancellation.unsubscribe(waiter_);
  }

  Op op_;
  Waiter& waiter_;
  job* job_;
  bool waiting_{false};
};

/// What `co_await operation` runs. Destroying it while its coroutine is suspended ends the wait.
template <operation Op>
class operation_awaiter : private coroutine_waiter {
 public:
  template <class... Args>
  explicit operation_awaiter(Args&&... args)
      : operation_awaiter(on_behalf_of{current_job()}, std::forward<Args>(args)...) {}
  operation_awaiter(const operation_awaiter&) = delete;
  operation_awaiter& operator=(const operation_awaiter&) = delete;
  ~operation_awaiter() {
    if (!wait_.is_waiting()) return;
    abandon_wait();
    wait_.give_up();
  }

  bool await_ready() const {
    wait_.throw_if_cancelled();
    return false;
  }
  bool await_suspend(std::coroutine_handle<> h) noexcept {
    suspend(h);
    return suspended();
  }
  decltype(auto) await_resume() { return wait_.end(); }

 private:
  struct on_behalf_of {
    job* j;
  };
  template <class... Args>
  explicit operation_awaiter(on_behalf_of task, Args&&... args)
      : coroutine_waiter(task.j), wait_(task.j, *this, std::forward<Args>(args)...) {
    if constexpr (retrying_operation<Op>) this->run = &try_again;
  }

  /// Waits. True if the coroutine stays suspended: then this object may have been destroyed.
  bool suspended() noexcept {
    do {
      if (!wait_.begin()) return yields();
      if (park()) return true;
    } while (wait_.again());
    return false;
  }

  /// The operation is done. True if others have their turn before the coroutine continues: then
  /// this object may have been destroyed.
  bool yields() noexcept {
    job* const j = its_job();
    if (j == nullptr || wait_.is_waiting()) return false;  // no task; cancelled as it began
    const std::uint32_t left = j->budget.load(std::memory_order_relaxed);
    if (left >= share_of_turn<Op>) [[likely]] {
      j->budget.store(left - share_of_turn<Op>, std::memory_order_relaxed);
      return false;
    }
    home().ready_last(*this);
    return true;
  }

  /// What a worker runs when the coroutine is woken.
  static void try_again(runnable& r) noexcept {
    auto& self = static_cast<operation_awaiter&>(r);
    set_current_job(self.its_job());
    if (self.wait_.again() && self.suspended()) return set_current_job(nullptr);
    resume_coroutine(r);
  }

  wait_for<Op, coroutine_waiter> wait_;
};

/// Waits for an operation on the calling thread.
template <operation Op, class... Args>
decltype(auto) wait_on_thread(Args&&... args) {
  thread_waiter waiter(thread_waiter::on_deadlock::end_wait);
  wait_for<Op, thread_waiter> wait(current_job(), waiter, std::forward<Args>(args)...);
  wait.throw_if_cancelled();
  do {
    if (!wait.begin()) break;
    waiter.wait(Op::waiting_for);
  } while (wait.again());
  return wait.end();
}

/// What a user holds of an operation: `co_await` it in a coroutine, or wait() for it on a thread.
template <class Derived>
class awaitable {
 public:
  /// Blocks the calling thread until the operation is done.
  decltype(auto) wait() {
    return wait_on_thread<typename Derived::action>(static_cast<Derived&>(*this));
  }

  auto operator co_await() {
    return operation_awaiter<typename Derived::action>(static_cast<Derived&>(*this));
  }

 protected:
  awaitable() = default;
  awaitable(const awaitable&) = default;
  awaitable(awaitable&&) noexcept = default;
  awaitable& operator=(const awaitable&) = default;
  awaitable& operator=(awaitable&&) noexcept = default;
  ~awaitable() = default;
};

}  // namespace verge::detail

#pragma GCC visibility pop
