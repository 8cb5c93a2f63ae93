// SPDX-License-Identifier: Apache-2.0
// verge's side of the comparison: for every workload of bench/go the same through verge's own API.
#pragma once

#include <verge/runtime.h>

#include <functional>
#include <string>
#include <vector>

#include "figures.h"

namespace verge::bench {

/// A figure of a workload, and its goal: how many times better than Go's.
struct goal {
  statistic what;
  double ratio;
};

struct workload {
  /// What the table says: Go's name for it, and after a slash what makes it special.
  std::string name;
  /// What Go's side calls it.
  std::string go_name;
  std::vector<goal> goals;
  /// Changes what is special about it in the parameters that all workloads start from.
  std::function<void(parameters&)> adapt;
  /// One round of verge's.
  std::function<figures(runtime&, const parameters&)> run;
};

std::vector<workload> all_workloads();

}  // namespace verge::bench
