// SPDX-License-Identifier: Apache-2.0
// Waiting for something to become true, in tests that need real time.
//
// A test never sleeps "to be sure": it waits for a condition, and gives up only after a time that
// no correct program needs, however busy the machine is.
#pragma once

#include <chrono>
#include <thread>

namespace verge::test {

inline constexpr std::chrono::seconds patience{60};

/// Waits until condition() holds, and returns whether it did before patience ran out. That requires
/// both the time and enough checks: while the machine stalls, the clock advances without a check.
template <class Condition>
bool eventually(Condition&& condition, std::chrono::nanoseconds limit = patience) {
  const auto give_up = std::chrono::steady_clock::now() + limit;
  auto looks = limit / std::chrono::milliseconds(4);
  auto pause = std::chrono::microseconds(20);
  while (!condition()) {
    if (--looks < 0 && std::chrono::steady_clock::now() > give_up) return condition();
    std::this_thread::sleep_for(pause);
    if (pause < std::chrono::milliseconds(1)) pause *= 2;
  }
  return true;
}

}  // namespace verge::test
