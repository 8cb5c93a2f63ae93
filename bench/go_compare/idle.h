// SPDX-License-Identifier: Apache-2.0
// Checks that an idle runtime with timers that are far away does nothing.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>

namespace verge::bench {

/// What the threads of a process did meanwhile.
struct idleness {
  std::uint64_t wakeups{0};
  std::chrono::nanoseconds cpu{0};
};

/// Observes all threads of a process for a while, except the calling one.
idleness watch_idle(pid_t process, std::chrono::milliseconds duration);

}  // namespace verge::bench
