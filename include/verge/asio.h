#pragma once

#include <asio/any_io_executor.hpp>
#include <asio/associated_allocator.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/bind_executor.hpp>
#include <asio/error.hpp>
#include <asio/error_code.hpp>
#include <asio/execution/context.hpp>
#include <asio/execution/outstanding_work.hpp>
#include <asio/execution_context.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/prefer.hpp>
#include <asio/query.hpp>
#include <asio/steady_timer.hpp>
#include <asio/system_executor.hpp>
#if __has_include(<asio/associated_cancellation_slot.hpp>)
#include <asio/associated_cancellation_slot.hpp>
#endif

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <verge/clock.h>
#include <verge/detail/asio_timer.h>
#include <verge/simulation.h>

#pragma GCC visibility push(default)

/// Timers for programs on Asio: the interface of asio::steady_timer, and a promise that it does not
/// make.
///
///   asio::io_context io;
///   verge::asio_timer idle(io, 30s);
///   idle.async_wait([&](std::error_code error) { if (!error) close(connection); });
///   idle.expires_after(30s);                            // 1: that wait will see operation_aborted
///   co_await idle.async_wait(asio::use_awaitable);
///
/// What differs from asio::steady_timer:
///
/// - What cancel() says is what the handlers see. asio::steady_timer decides when the timer fires:
///   while its handler is queued, cancel() returns 0 and the handler sees success, and closes the
///   connection that was just kept alive. Here the outcome is decided when the handler runs:
///   cancel(), cancel_one(), expires_after() and expires_at() return the number of waits that will
///   see operation_aborted, exactly.
/// - All members may be called from any thread, without a strand.
/// - The clock is verge::clock: its times have the counts of std::chrono::steady_clock, and in a
///   simulation it is simulated (run_simulated, below).
/// - Beneath is verge's queue: start and cancel take constant time for any number of timers.
///
/// What is the same: completion tokens, associated executors, allocators and cancellation slots
/// (from Asio 1.19 and Boost 1.77 on, so `co_await (a || b)` works); a pending wait is work that
/// keeps run() from returning; destroying a timer cancels its waits; destroying the context
/// destroys handlers without calling them. No handler is called inside async_wait() or cancel().
///
/// <verge/boost_asio.h> is the same for Boost.Asio. Not part of <verge/verge.h>, as it needs the
/// headers of standalone Asio, 1.18 or later.
namespace verge {
namespace detail {

/// Where Asio's names are.
struct standalone_asio {
  using error_code = ::asio::error_code;
  using execution_context = ::asio::execution_context;
  using any_io_executor = ::asio::any_io_executor;
  using steady_timer = ::asio::steady_timer;
  template <class Executor>
  using work_guard = ::asio::executor_work_guard<Executor>;
  template <class Executor>
  using default_token = typename ::asio::default_completion_token<Executor>::type;

  static error_code aborted() noexcept { return ::asio::error::operation_aborted; }

  template <class Service, class Context>
  static Service& use_service(Context& context) {
    return ::asio::use_service<Service>(static_cast<execution_context&>(context));
  }
  template <class Executor>
  static execution_context& context_of(const Executor& ex) {
    return ::asio::query(ex, ::asio::execution::context);
  }
  /// The executor as one that is work of its context as long as it exists.
  static any_io_executor tracked(const any_io_executor& ex) {
    return ::asio::prefer(ex, ::asio::execution::outstanding_work.tracked);
  }
  template <class Handler, class Executor>
  static auto executor_of(const Handler& h, const Executor& otherwise) {
    return ::asio::get_associated_executor(h, otherwise);
  }
  template <class Handler>
  static auto allocator_of(const Handler& h) {
    return ::asio::get_associated_allocator(h);
  }
  template <class Handler>
  static auto slot_of([[maybe_unused]] const Handler& h) {
#if __has_include(<asio/associated_cancellation_slot.hpp>)
    return ::asio::get_associated_cancellation_slot(h);
#else
    return no_slot{};
#endif
  }
  /// Executors whose work is that of their context.
  template <class Executor>
  static constexpr bool is_plain = std::is_same_v<Executor, any_io_executor> ||
                                   std::is_same_v<Executor, ::asio::io_context::executor_type>;
  /// `ex` may be destroyed before the call returns, by f.
  template <class Executor, class F>
  static void post(const Executor& ex, F&& f) {
    if constexpr (std::is_same_v<Executor, any_io_executor>) {
      // Past the type-erased executor, whose properties take several indirect calls.
      using plain = ::asio::io_context::executor_type;
      if (const plain* p = ex.template target<plain>()) {
        const plain copy = *p;
        return ::asio::post(copy, std::forward<F>(f));
      }
    }
    const Executor copy = ex;  // NOLINT: f may destroy `ex`
    ::asio::post(copy, std::forward<F>(f));
  }
  /// A handler that runs on the thread that completes its operation, whatever the executor.
  template <class F>
  static auto run_inline(F&& f) {
    return ::asio::bind_executor(::asio::system_executor(), std::forward<F>(f));
  }
  template <class Token, class Initiation>
  static auto initiate(Initiation&& begin, Token& token) {
    return ::asio::async_initiate<Token, void(error_code)>(std::forward<Initiation>(begin), token);
  }
};

}  // namespace detail

/// A timer with an executor of its own type, as asio::basic_waitable_timer has.
template <class Executor = ::asio::any_io_executor>
using basic_asio_timer = detail::asio_timer<detail::standalone_asio, Executor>;
/// A timer with the usual executor: what asio::steady_timer is.
using asio_timer = basic_asio_timer<>;

/// Runs the context in simulated time: handlers run at once, and when none is ready, time moves to
/// the next timer. A day takes milliseconds, and the
/// same seed gives the same run: it decides the order of timers that are due at the same time.
///
///   verge::simulation sim(seed);
///   asio::io_context io;
///   ...                                                 // verge::asio_timer, verge::clock
///   verge::run_simulated(sim, io);
///
/// Returns the number of handlers that ran when the context has no work left or is stopped, or when
/// `d` of simulated time has passed. Throws verge::deadlock if the context waits for something else
/// than verge's timers, which no time brings. Handlers run on a thread of the simulation, while the
/// caller waits, and must not block. Sockets work if both ends are in the context. From the first
/// call on, timers of this context fire only in this function.
inline std::size_t run_simulated(simulation& sim, ::asio::io_context& context) {
  return detail::run_simulated<detail::standalone_asio>(sim, context, clock::time_point::max());
}
template <class Rep, class Period>
std::size_t run_simulated(simulation& sim, ::asio::io_context& context,
                          std::chrono::duration<Rep, Period> d) {
  const auto left = clock::time_point::max() - sim.now();
  const auto limit = sim.now() + std::clamp<clock::duration>(saturate(d), {}, left);
  return detail::run_simulated<detail::standalone_asio>(sim, context, limit);
}

}  // namespace verge

#pragma GCC visibility pop
