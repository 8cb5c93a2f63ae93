// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <system_error>
#include <type_traits>
#include <utility>

#include <verge/context.h>
#include <verge/detail/limit.h>
#include <verge/task.h>

#pragma GCC visibility push(default)

/// Waiting under a context: any operation or task ends when the context is done.
///
///   auto message = co_await verge::under(ctx, verge::recv(ch));
///   verge::under(ctx, verge::sleep(1s)).wait();                // on a plain thread
///   auto reply = co_await verge::under(ctx, call(server));     // or a task
///   auto [n, error] = co_await verge::under(ctx, conn.read_full(bytes));      // error: ctx.err()
///
/// An operation that has not completed when the context is done is given up. Under a context that
/// is already done it is not tried. If it completes first, it returns its result. What an operation
/// that was given up does depends on whether its result carries an error:
///
///  - recv, send, select, sleep, join: it has not happened, and context_error is thrown. That is a
///    verge::cancelled, as in a cancelled task: let it propagate, and it ends the task and its
///    callers up to the one that handles it.
///  - Operations of sockets and other descriptors: the result has the context's err() and says what
///    was done. A read_full that has read three bytes returns {3, context_errc::cancelled}; its
///    or_throw() throws verge::cancelled.
///
/// docs/tasks-and-channels.md has a table of all operations.
///
/// A task is cancelled, and under() returns after it has ended, as with timeout(). Under a context
/// that is already done it does not begin.
namespace verge {

/// Thrown by an operation that was given up because its context is done and that has no error in
/// its result.
class context_error : public cancelled {
 public:
  /// With the reasons of a context that is done.
  explicit context_error(const context& ctx) noexcept : code_(ctx.err()), cause_(ctx.cause()) {}
  const char* what() const noexcept override;  ///< says which of the two reasons it was
  /// The context's err().
  std::error_code code() const noexcept { return code_; }
  /// The context's cause().
  std::error_code cause() const noexcept { return cause_; }

 private:
  std::error_code code_;
  std::error_code cause_;
};

namespace detail {

[[noreturn]] void throw_context_done(const context& ctx);

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

  class watch {
   public:
    explicit watch(const context_limit& l) noexcept : ctx_(l.ctx) {}

    bool reached() const noexcept {
      const context_scope* const scope = context_access::scope(ctx_);
      return scope != nullptr && scope_is_done(*scope);
    }
    bool start(waiter& w, std::uint32_t ticket) noexcept {
      context_scope* const scope = context_access::scope(ctx_);
      if (scope == nullptr) return true;
      return joined_ = join_scope(*scope, wait_, w, ticket);
    }
    void pause() noexcept { stop(); }
    void stop() noexcept {
      if (std::exchange(joined_, false)) leave_scope(*context_access::scope(ctx_), wait_);
    }
    bool kept() const noexcept { return true; }
    std::error_code why() const noexcept { return ctx_.err(); }
    [[noreturn]] void fail() { throw_context_done(ctx_); }

   private:
    const context& ctx_;
    context_wait wait_;
    bool joined_{false};
  };
};

}  // namespace detail

/// Performs `op`. If ctx is done first, its result has the error ctx.err(); if its result has no
/// error, throws context_error. A join_handle passed by reference can be joined again.
template <detail::is_operation Op>
auto under(context ctx, Op&& op) {
  return detail::limited(detail::context_limit{std::move(ctx)}, std::forward<Op>(op));
}
/// Runs `work` and cancels it when ctx is done.
template <class T>
task<T> under(context ctx, task<T>&& work) {
  return detail::limited_task(detail::context_limit{std::move(ctx)}, std::move(work));
}
template <class T>
task<T> under(const context& /*ctx*/, task<T>& /*work*/) {
  static_assert(!std::is_same_v<T, T>, "a task is awaited once: write under(ctx, std::move(t))");
  return {};
}

}  // namespace verge

#pragma GCC visibility pop
