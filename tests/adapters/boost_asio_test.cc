// SPDX-License-Identifier: Apache-2.0

// verge's timers for Boost.Asio.

#include <verge/boost_asio.h>
//
#include <boost/asio.hpp>
#if defined(BOOST_ASIO_HAS_CO_AWAIT)
#if __has_include(<boost/asio/experimental/awaitable_operators.hpp>)
#include <boost/asio/experimental/awaitable_operators.hpp>
#endif
#endif
#include <gtest/gtest.h>
#include <support/scale.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#if __has_include(<boost/asio/cancellation_signal.hpp>)
#define VERGE_TEST_SLOTS 1
#endif
#if defined(BOOST_ASIO_HAS_CO_AWAIT)
#define VERGE_TEST_COROUTINES 1
#endif

namespace {

namespace net = boost::asio;
using timer = verge::boost_asio_timer;
using error_code = boost::system::error_code;
using verge::test::scale;

#include <adapters/asio_cases.h>
//
#include <adapters/asio_simulation_cases.h>
#include <adapters/asio_stress_cases.h>

}  // namespace
