// SPDX-License-Identifier: Apache-2.0
// Measures work independently of other load on the machine.
#pragma once

#include <chrono>
#include <ctime>

namespace verge::test {

/// The processor time of all threads of this process.
inline std::chrono::nanoseconds processor_time() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

}  // namespace verge::test
