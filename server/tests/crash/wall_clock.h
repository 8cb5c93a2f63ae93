// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "process.h"

namespace verge::crash {

/// The wall clock of servers that are started with it; it can be set while they run.
class wall_clock {
 public:
  /// In a directory of the test's.
  explicit wall_clock(const scratch& place);
  wall_clock(const wall_clock&) = delete;
  wall_clock& operator=(const wall_clock&) = delete;
  ~wall_clock();

  /// What a server is to be started with.
  environment variables() const;
  /// Sets the clock by so much, also of the server that runs.
  void step(std::int64_t nanoseconds);
  /// What the clock says, in nanoseconds since 1970.
  std::int64_t now() const;

 private:
  std::string fifo_;
  std::string file_;
  int to_{-1};
  std::atomic<std::int64_t>* offset_{nullptr};  ///< shared with the server
};

}  // namespace verge::crash
