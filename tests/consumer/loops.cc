// SPDX-License-Identifier: Apache-2.0

// A user's program with a loop of its own, and with Asio's where it is installed: the adapters need
// nothing but the installed headers. Prints the version, as consumer.cc does.
#include <poll.h>
#include <verge/loop.h>
#include <verge/version.h>

// One of the two: Asio's own headers conflict with each other.
#if __has_include(<boost/asio.hpp>)
#include <verge/boost_asio.h>
#elif __has_include(<asio.hpp>)
#include <verge/asio.h>
#endif

#include <chrono>
#include <iostream>
#include <thread>

using namespace std::chrono_literals;

namespace {

bool polls() {
  verge::loop_timers timers;
  bool called = false;
  const std::jthread other([&] { timers.start(1ms, [&] { called = true; }); });
  while (!called) {
    pollfd watched{.fd = timers.fd(), .events = POLLIN, .revents = 0};
    if (::poll(&watched, 1, -1) == 1) timers.run();
  }
  return timers.empty();
}

template <class Timer, class Context>
[[maybe_unused]] bool runs_a_context() {
  Context io;
  Timer due(io, -1ms);
  Timer cancelled(io, 1h);
  int success = 0;
  int aborted = 0;
  due.async_wait([&](auto error) { success += !error; });
  cancelled.async_wait([&](auto error) { aborted += !!error; });
  const auto said = static_cast<int>(cancelled.cancel());
  io.run();
  return success == 1 && aborted == said;
}

}  // namespace

int main() {
  if (!polls()) return 1;
#if __has_include(<boost/asio.hpp>)
  if (!runs_a_context<verge::boost_asio_timer, boost::asio::io_context>()) return 1;
#elif __has_include(<asio.hpp>)
  if (!runs_a_context<verge::asio_timer, asio::io_context>()) return 1;
#endif
  std::cout << verge::version() << '\n';
}
