// SPDX-License-Identifier: Apache-2.0
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

namespace in_boost_asio {
namespace asio = ::boost::asio;
using asio_error_code = ::boost::system::error_code;
#include <verge/detail/asio_names.inc>
}  // namespace in_boost_asio

struct boost_asio : in_boost_asio::names {
  template <class Handler>
  static auto slot_of([[maybe_unused]] const Handler& h) {
#if __has_include(<boost/asio/associated_cancellation_slot.hpp>)
    return ::boost::asio::get_associated_cancellation_slot(h);
#else
    return no_slot{};
#endif
  }
};
template <>
struct asio_of<::boost::asio::io_context> {
  using type = boost_asio;
};

}  // namespace detail

/// As basic_asio_timer.
template <class Executor = ::boost::asio::any_io_executor>
using basic_boost_asio_timer = detail::asio_timer<detail::boost_asio, Executor>;
/// As asio_timer.
using boost_asio_timer = basic_boost_asio_timer<>;

}  // namespace verge

#pragma GCC visibility pop
