// SPDX-License-Identifier: Apache-2.0

// verge's timers for standalone Asio.

#include <verge/asio.h>
//
#include <gtest/gtest.h>
#include <support/scale.h>
#include <asio.hpp>
#if defined(ASIO_HAS_CO_AWAIT)  // not with clang and this Asio
#include <asio/experimental/awaitable_operators.hpp>
#endif

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

#define VERGE_TEST_SLOTS 1
#if defined(ASIO_HAS_CO_AWAIT)
#define VERGE_TEST_COROUTINES 1
#endif

namespace {

namespace net = asio;
using timer = verge::asio_timer;
using error_code = std::error_code;
using verge::test::scale;

#include <adapters/asio_cases.h>
//
#include <adapters/asio_simulation_cases.h>
#include <adapters/asio_stress_cases.h>

}  // namespace
