// SPDX-License-Identifier: Apache-2.0
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

namespace in_standalone_asio {
namespace asio = ::asio;
using asio_error_code = ::asio::error_code;
#include <verge/detail/asio_names.inc>
}  // namespace in_standalone_asio

struct standalone_asio : in_standalone_asio::names {
  template <class Handler>
  static auto slot_of([[maybe_unused]] const Handler& h) {
#if __has_include(<asio/associated_cancellation_slot.hpp>)
    return ::asio::get_associated_cancellation_slot(h);
#else
    return no_slot{};
#endif
  }
};
template <>
struct asio_of<::asio::io_context> {
  using type = standalone_asio;
};

}  // namespace detail

/// A timer with an executor of its own type, as asio::basic_waitable_timer has.
template <class Executor = ::asio::any_io_executor>
using basic_asio_timer = detail::asio_timer<detail::standalone_asio, Executor>;
/// A timer with the usual executor: what asio::steady_timer is.
using asio_timer = basic_asio_timer<>;

}  // namespace verge

#pragma GCC visibility pop
