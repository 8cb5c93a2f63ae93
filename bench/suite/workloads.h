// SPDX-License-Identifier: Apache-2.0
// The workloads by name, and the sizes at which each is run; workloads.md defines them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace verge::bench {

struct workload_info {
  std::string name;
  /// One line for people.
  std::string what;
  /// The number of timers if it is fixed; 0: those the user names.
  std::size_t fixed_timers = 0;
  bool timers_are_fixed = false;
  /// Smaller sizes tell nothing: the figure would be the measurement's own cost.
  std::size_t at_least = 0;
  /// Run once for every number of threads.
  bool in_threads = false;
  bool is_lateness = false;
  /// The cores but one are kept busy meanwhile.
  bool keeps_busy = false;
  unsigned milliseconds = 500;
  unsigned quick_milliseconds = 60;
  /// Repetitions in a quick run, where that is fewer than others have.
  unsigned quick_repeat = 3;
};

const std::vector<workload_info>& all_workloads();

}  // namespace verge::bench
