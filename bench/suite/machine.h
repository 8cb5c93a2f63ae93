// SPDX-License-Identifier: Apache-2.0
// What the figures were taken on.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>

namespace verge::bench {

/// "cpu", "cores", "memory", "kernel", "system", "compiler", "flags", "verge", "date", "clock_ns".
std::map<std::string, std::string> describe_machine();

/// Processor time of all cores, in seconds, since the machine was started.
struct processor_seconds {
  double used = 0;    ///< by programs and by the kernel
  double stolen = 0;  ///< by the host of a virtual machine
};
/// From the text of /proc/stat, which counts in ticks; nothing if it is not there.
processor_seconds parse_processor_seconds(std::string_view stat, double ticks_per_second);

/// How much of the machine others had meanwhile: figures of a busy machine are of little use.
struct machine_share {
  double others = 0;  ///< of what all cores could do, in percent: programs that are not of this run
  double stolen = 0;
  bool too_busy() const { return others > most || stolen > most; }
  static constexpr double most = 5;
};

/// Of what was used, this run's own part is no other's. `possible` is what all cores could do.
machine_share share_of(processor_seconds used, double own, double possible);

/// Looks at the machine when it is made, and says what has happened since. Children are counted as
/// this run's once they have been waited for.
class machine_watch {
 public:
  machine_watch();
  machine_share since() const;

 private:
  std::chrono::steady_clock::time_point begin_;
  processor_seconds all_;
  double own_;
};

}  // namespace verge::bench
