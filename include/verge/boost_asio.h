#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_allocator.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/execution/context.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/query.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/system_executor.hpp>
#if __has_include(<boost/asio/associated_cancellation_slot.hpp>)
#include <boost/asio/associated_cancellation_slot.hpp>
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

/// Timers for programs on Boost.Asio 1.74 or later: <verge/asio.h>, which has the documentation,
/// for the names in boost::asio.
///
///   boost::asio::io_context io;
///   verge::boost_asio_timer idle(io, 30s);
///   idle.async_wait([&](boost::system::error_code error) { if (!error) close(connection); });
///
/// Not part of <verge/verge.h>, as it needs Boost's headers.
namespace verge {
namespace detail {

/// Where Asio's names are.
struct boost_asio {
  using error_code = ::boost::system::error_code;
  using execution_context = ::boost::asio::execution_context;
  using any_io_executor = ::boost::asio::any_io_executor;
  using steady_timer = ::boost::asio::steady_timer;
  template <class Executor>
  using work_guard = ::boost::asio::executor_work_guard<Executor>;
  template <class Executor>
  using default_token = typename ::boost::asio::default_completion_token<Executor>::type;

  static error_code aborted() noexcept { return ::boost::asio::error::operation_aborted; }

  template <class Service, class Context>
  static Service& use_service(Context& context) {
    return ::boost::asio::use_service<Service>(static_cast<execution_context&>(context));
  }
  template <class Executor>
  static execution_context& context_of(const Executor& ex) {
    return ::boost::asio::query(ex, ::boost::asio::execution::context);
  }
  /// The executor as one that is work of its context as long as it exists.
  static any_io_executor tracked(const any_io_executor& ex) {
    return ::boost::asio::prefer(ex, ::boost::asio::execution::outstanding_work.tracked);
  }
  template <class Handler, class Executor>
  static auto executor_of(const Handler& h, const Executor& otherwise) {
    return ::boost::asio::get_associated_executor(h, otherwise);
  }
  template <class Handler>
  static auto allocator_of(const Handler& h) {
    return ::boost::asio::get_associated_allocator(h);
  }
  template <class Handler>
  static auto slot_of([[maybe_unused]] const Handler& h) {
#if __has_include(<boost/asio/associated_cancellation_slot.hpp>)
    return ::boost::asio::get_associated_cancellation_slot(h);
#else
    return no_slot{};
#endif
  }
  /// Executors whose work is that of their context.
  template <class Executor>
  static constexpr bool is_plain =
      std::is_same_v<Executor, any_io_executor> ||
      std::is_same_v<Executor, ::boost::asio::io_context::executor_type>;
  /// `ex` may be destroyed before the call returns, by f.
  template <class Executor, class F>
  static void post(const Executor& ex, F&& f) {
    if constexpr (std::is_same_v<Executor, any_io_executor>) {
      // Past the type-erased executor, whose properties take several indirect calls.
      using plain = ::boost::asio::io_context::executor_type;
      if (const plain* p = ex.template target<plain>()) {
        const plain copy = *p;
        return ::boost::asio::post(copy, std::forward<F>(f));
      }
    }
    const Executor copy = ex;  // NOLINT: f may destroy `ex`
    ::boost::asio::post(copy, std::forward<F>(f));
  }
  /// A handler that runs on the thread that completes its operation, whatever the executor.
  template <class F>
  static auto run_inline(F&& f) {
    return ::boost::asio::bind_executor(::boost::asio::system_executor(), std::forward<F>(f));
  }
  template <class Token, class Initiation>
  static auto initiate(Initiation&& begin, Token& token) {
    return ::boost::asio::async_initiate<Token, void(error_code)>(std::forward<Initiation>(begin),
                                                                  token);
  }
};

}  // namespace detail

/// A timer with an executor of its own type, as asio::basic_waitable_timer has.
template <class Executor = ::boost::asio::any_io_executor>
using basic_boost_asio_timer = detail::asio_timer<detail::boost_asio, Executor>;
/// A timer with the usual executor: what asio::steady_timer is.
using boost_asio_timer = basic_boost_asio_timer<>;

/// Runs the context in simulated time: handlers run at once, and when none is ready, time moves to
/// the next timer. A day takes milliseconds, and the
/// same seed gives the same run: it decides the order of timers that are due at the same time.
///
///   verge::simulation sim(seed);
///   boost::asio::io_context io;
///   ...                                                 // verge::boost_asio_timer, verge::clock
///   verge::run_simulated(sim, io);
///
/// Returns the number of handlers that ran when the context has no work left or is stopped, or when
/// `d` of simulated time has passed. Throws verge::deadlock if the context waits for something else
/// than verge's timers, which no time brings. Handlers run on a thread of the simulation, while the
/// caller waits, and must not block. Sockets work if both ends are in the context. From the first
/// call on, timers of this context fire only in this function.
inline std::size_t run_simulated(simulation& sim, ::boost::asio::io_context& context) {
  return detail::run_simulated<detail::boost_asio>(sim, context, clock::time_point::max());
}
template <class Rep, class Period>
std::size_t run_simulated(simulation& sim, ::boost::asio::io_context& context,
                          std::chrono::duration<Rep, Period> d) {
  const auto left = clock::time_point::max() - sim.now();
  const auto limit = sim.now() + std::clamp<clock::duration>(saturate(d), {}, left);
  return detail::run_simulated<detail::boost_asio>(sim, context, limit);
}

}  // namespace verge

#pragma GCC visibility pop
