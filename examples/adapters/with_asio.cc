// SPDX-License-Identifier: Apache-2.0

// verge's timers in an Asio program: the outcome of a wait is what the timer said it would be.

#include <verge/asio.h>

#include <chrono>
#include <cstdio>
#include <system_error>
#include <thread>

using namespace std::chrono_literals;

namespace {

/// Closes when nothing has happened until the expiry. Each postponement ends the wait, and this
/// begins another.
void watch(verge::asio_timer& idle) {
  idle.async_wait([&](std::error_code error) {
    if (error) return watch(idle);
    std::puts("closed");
  });
}

}  // namespace

int main() {
  asio::io_context io;
  verge::asio_timer idle(io, 30s);
  watch(idle);
  std::jthread other([&] { idle.expires_after(20ms); });  // any thread, no strand
  io.run();
}
