#pragma once

#include <cstdint>
#include <system_error>
#include <type_traits>
#include <utility>

#include <verge/context.h>
#include <verge/detail/operation.h>
#include <verge/task.h>
#include <verge/timeout.h>

#pragma GCC visibility push(default)

/// Waiting under a context: anything that can be awaited ends when the context is done.
///
///   auto message = co_await verge::under(ctx, verge::recv(ch));
///   verge::under(ctx, verge::sleep(1s)).wait();                // on a plain thread
///   auto reply = co_await verge::under(ctx, call(server));     // a task, too
///
/// When the context is done it throws context_error. That is a verge::cancelled, as in a task that
/// is cancelled: let it through, and it ends the task and whatever called it, up to where somebody
/// wants to know how the work went.
///
/// An operation - recv, send, select, sleep, a join, whatever a socket does - that has not taken
/// place when the context is done is withdrawn: it has not happened. Under a context that is done
/// it is not even tried. If it was faster, it gives its result, so nothing that was received is
/// lost.
///
/// A task is cancelled, and it is waited for until it has ended, as with timeout(). Under a context
/// that is done it does not begin.
namespace verge {

/// Thrown by what is done under a context when that is done.
class context_error : public cancelled {
 public:
  explicit context_error(const context& ctx) noexcept : code_(ctx.err()), cause_(ctx.cause()) {}
  const char* what() const noexcept override;
  /// The context's err() and cause().
  std::error_code code() const noexcept { return code_; }
  std::error_code cause() const noexcept { return cause_; }

 private:
  std::error_code code_;
  std::error_code cause_;
};

namespace detail {

[[noreturn]] void throw_context_done(const context& ctx);

template <class Op>
class under_operation;

template <class Op>
class under_action {
 public:
  static constexpr const char* waiting_for = Op::action::waiting_for;
  static constexpr bool cancellable = Op::action::cancellable;

  explicit under_action(under_operation<Op>& op) : ctx_(op.ctx_), inner_(op.op_) {}

  bool start(waiter& w) noexcept {
    context_scope* const scope = ctx_.scope();
    // Woken by a hint it takes what has come, whatever the context says by now.
    if (!started_ && scope != nullptr && scope_is_done(*scope)) {
      over_ = true;
      return false;
    }
    const bool waits = inner_.start(w);
    if (!waits) return started_ = false;
    started_ = true;
    if (scope == nullptr || join_scope(*scope, wait_, w, by_context)) return true;
    // It is done as we begin - unless what is waited for was faster, and wakes us.
    over_ = w.claim(by_context);
    return !over_;
  }
  void withdraw() noexcept {
    leave();
    inner_.withdraw();
  }
  void again() noexcept requires retrying_operation<typename Op::action> {
    leave();
    inner_.again();
  }
  decltype(auto) finish(std::uint32_t winner) {
    if (started_) leave();
    if (over_ || wait_.won) {
      if (started_) inner_.withdraw();
      throw_context_done(ctx_);
    }
    return inner_.finish(winner);
  }

 private:
  static constexpr std::uint32_t by_context = waiter::by_hint - 1;

  void leave() noexcept {
    if (context_scope* const scope = ctx_.scope()) leave_scope(*scope, wait_);
  }

  const context& ctx_;
  typename Op::action inner_;
  context_wait wait_;
  bool started_{false};
  bool over_{false};
};

template <class Op>
class [[nodiscard("co_await it, or wait() for it")]] under_operation
    : public awaitable<under_operation<Op>> {
 public:
  using action = under_action<Op>;
  under_operation(context ctx, Op op) : ctx_(std::move(ctx)), op_(std::move(op)) {}

 private:
  friend action;
  context ctx_;
  Op op_;
};

struct context_limit {
  context ctx;

  void begin() const {
    if (ctx.err()) fail();
  }
  template <class F>
  context_callback alarm(F f) const {
    return after_func(ctx, std::move(f));
  }
  [[noreturn]] void fail() const { throw_context_done(ctx); }
};

}  // namespace detail

/// Does `op`, or throws when ctx is done.
template <detail::is_operation Op>
auto under(context ctx, Op&& op) {
  return detail::under_operation<std::remove_cvref_t<Op>>(std::move(ctx), std::forward<Op>(op));
}
/// Runs `work`, and cancels it when ctx is done.
template <class T>
task<T> under(context ctx, task<T> work) {
  return detail::limited_task(detail::context_limit{std::move(ctx)}, std::move(work));
}

}  // namespace verge

#pragma GCC visibility pop
