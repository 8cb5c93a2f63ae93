// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <verge/runtime.h>

/// How many processors a runtime has by default: as many as the process can use. A thread per core
/// of the machine is too many in a container that may use one of them: the threads take turns, and
/// all of them stop when the container's share of a period is used up.
///
/// There are two limits beside the number of cores. The affinity mask says on which of them the
/// calling thread may run. A control group has a quota of processor time per period, its own and
/// that of each group above it; the process is in one group of cgroup v2, or in one of v1's cpu
/// hierarchy.
namespace verge::detail {

/// A control group that may have a quota, and those above it.
struct cpu_group {
  bool v2;
  std::string mounted_at;  ///< where the top group that can be seen is
  std::string below;       ///< the group, from there: "" or "/a/b"

  friend bool operator==(const cpu_group&, const cpu_group&) = default;
};

/// Where those of the process are: from the texts of /proc/self/cgroup and /proc/self/mountinfo.
std::vector<cpu_group> find_cpu_groups(std::string_view cgroup, std::string_view mountinfo);

/// A quota in whole processors, rounded up; 0 if there is none or the text makes no sense. cpu.max
/// of v2 has "150000 100000" or "max 100000"; v1 has two files, with a quota of -1 for none.
unsigned cpus_of_cpu_max(std::string_view text) noexcept;
unsigned cpus_of_quota(std::string_view quota, std::string_view period) noexcept;

/// The limits as they are now. `root` is where /proc and /sys are looked for.
processor_limits read_processor_limits(const std::string& root = "");

/// The number of processors within these limits, and at most `most`; and which of them decided.
struct processor_choice {
  unsigned number;
  processors_from from;
};
processor_choice choose_processors(const processor_limits& limits, unsigned most) noexcept;

}  // namespace verge::detail
