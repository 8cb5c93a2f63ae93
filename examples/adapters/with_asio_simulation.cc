// SPDX-License-Identifier: Apache-2.0

// An Asio program in simulated time: a day of hourly reports takes no time.

#include <verge/asio.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <system_error>

using namespace std::chrono_literals;

int main() {
  const std::uint64_t seed = 1;
  verge::simulation sim(seed);
  asio::io_context io;
  verge::asio_timer hourly(io);
  int reports = 0;
  std::function<void(std::error_code)> report = [&](std::error_code) {
    ++reports;
    hourly.expires_at(hourly.expiry() + 1h);
    hourly.async_wait(report);
  };
  hourly.expires_after(1h);
  hourly.async_wait(report);
  verge::run_simulated(sim, io, 24h);  // takes no time
  std::printf("%d reports\n", reports);
}
