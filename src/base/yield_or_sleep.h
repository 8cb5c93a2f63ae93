// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <thread>

namespace verge::detail {

/// For a loop that waits for another thread to make a few more steps: lets other threads run. Every
/// 64th time it sleeps instead, since a thread with a real-time priority that only yields never
/// lets one of lower priority run, and would wait for that one forever.
inline void yield_or_sleep() noexcept {
  constexpr unsigned yields = 64;
  thread_local constinit unsigned calls = 0;
  if (++calls % yields != 0) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace verge::detail
