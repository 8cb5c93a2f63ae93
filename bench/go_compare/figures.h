// SPDX-License-Identifier: Apache-2.0
// The parameters and results of one round of a workload, the same for verge and for Go.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace verge::bench {

/// What a round is to do. Each workload reads the part that concerns it.
struct parameters {
  int processors{2};
  /// Hour-long timers per processor that exist before the round starts.
  int background{1 << 15};
  /// How long to run, for workloads that count operations.
  std::chrono::milliseconds duration{200};
  /// How many samples to take, for workloads that measure how late things are.
  int samples{100};
  /// What to sleep, for SleepLateness.
  std::chrono::microseconds sleep{1000};
  /// Tickers per processor, for StaggeredTickerLatency.
  int tickers{1};
  /// For Echo.
  int connections{64};
};

/// What a round found: the cost of an operation, or samples.
struct figures {
  double ns_per_operation{0};
  std::vector<double> late_ns;
};

/// One number out of all rounds.
enum class statistic : std::uint8_t {
  per_operation,  ///< The median over the rounds of the cost of one operation.
  mean_late,      ///< Of all samples of all rounds, as the next two.
  p50_late,
  p99_late
};

const char* name_of(statistic s);

/// The number, in nanoseconds.
double evaluate(statistic s, const std::vector<figures>& rounds);

}  // namespace verge::bench
