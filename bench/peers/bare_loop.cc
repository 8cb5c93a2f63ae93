// SPDX-License-Identifier: Apache-2.0

// No timer system at all: a loop that sleeps until the next deadline. What the kernel gives, beside
// which the lateness of the others is seen.

#include <cstdint>

#include "kernel_sleeper.h"
#include "linked.h"
#include "measure.h"

namespace verge::bench {
namespace {

answer run(const request& r) {
  if (r.workload.starts_with("lateness_") && r.timers == 0) {
    const kernel_sleeper kernel;
    random_numbers random(r.seed + 1);
    const std::int64_t first = now() + 100 * millisecond;
    answer result;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(r.milliseconds); ++i) {
      appointment a{.due = first + i * millisecond + random.within(millisecond), .late = 0};
      kernel.sleep_until(a.due);
      call(&a);
      result.late_ns.push_back(a.late);
    }
    return result;
  }
  throw unsupported("a loop without timers");
}

}  // namespace

linked_peer bare_loop_peer() { return {.version = "epoll_pwait2", .run = &run}; }

}  // namespace verge::bench
