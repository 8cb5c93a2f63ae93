// SPDX-License-Identifier: Apache-2.0
// A peer: a timer system, ours or another, that performs one measurement at a time.
//
// The tool sends a request and gets an answer; between processes each is one line of text. The same
// protocol is used by the systems linked into the tool, which runs itself as a child for each of
// them, and by the programs in other languages (go/, netty/, tokio/):
//
//   start_stop timers=100000 threads=1 milliseconds=200 seed=7
//   {"ns_per_op":41.3,"longest_ns":5121}
//
// "version" is answered by {"version":"..."}. An error is {"error":"..."}, and a workload that a
// system cannot do is {"unsupported":"why"}. Lateness comes as samples in nanoseconds:
// {"late_ns":[...]}. The end of the input ends the program; between two requests it waits in a
// read. workloads.md says what each workload does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace verge::bench {

struct request {
  std::string workload;
  std::size_t timers = 1000;
  unsigned threads = 1;
  /// How long the measured part lasts at least.
  unsigned milliseconds = 200;
  std::uint64_t seed = 1;
};

struct answer {
  /// Keyed by the names of the report's metrics: "ns_per_op".
  std::map<std::string, double> metrics;
  std::vector<std::int64_t> late_ns;
};

/// What a system cannot do; what() says why, for the report.
class unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A system that is linked into this program.
struct linked_peer {
  std::string version;
  std::function<answer(const request&)> run;
};

}  // namespace verge::bench
