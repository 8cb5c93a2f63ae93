// How much work something was, whatever else the machine had to do meanwhile.
#pragma once

#include <chrono>
#include <ctime>

namespace verge::test {

/// The time that processors have spent on this process, all its threads together.
inline std::chrono::nanoseconds processor_time() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

}  // namespace verge::test
