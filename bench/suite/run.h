// SPDX-License-Identifier: Apache-2.0
// A run: every system at every piece of work, repetition by repetition.
//
// The machine's speed drifts, so the systems alternate: each repetition of a piece of work runs all
// of them before the next begins. Each measurement has a separate process, so that no system is
// affected by the memory of another; those with a compiler that warms up keep theirs.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "results.h"
#include "systems.h"
#include "workloads.h"

namespace verge::bench {

struct run_options {
  std::vector<std::string> systems;
  std::vector<std::string> workloads;
  std::vector<std::size_t> timers;
  std::vector<unsigned> threads;
  /// 0: as many as the kind of run has.
  unsigned repeat = 0;
  bool quick = false;
};

/// One piece of work, which all systems do.
struct job {
  const workload_info* workload = nullptr;
  std::size_t timers = 0;
  unsigned threads = 1;
  unsigned repeat = 1;
  unsigned milliseconds = 0;
  /// What one measurement takes, roughly, in seconds.
  double estimate() const;
};

/// What there is to do. `note` is told of workloads for which no size is left.
std::vector<job> plan(const run_options& options,
                      const std::function<void(const std::string&)>& note);

/// Receives the progress of a run.
struct run_listener {
  std::function<void(const std::string&)> note;
  /// What is being done, the share that has been, and the seconds that are left.
  std::function<void(const std::string&, double, double)> progress;
};

/// Runs it all; ends early, with what there is, once `stop` is set.
run_report run(const run_options& options, const run_listener& listener,
               const std::atomic<bool>& stop);

}  // namespace verge::bench
