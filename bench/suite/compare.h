// SPDX-License-Identifier: Apache-2.0
// Compares two reports: what has changed by more than the noise.
//
// A figure has changed if the repetitions of the two runs do not overlap and the medians differ by
// more than a tenth. If one of them has fewer than three repetitions, whose spread means little,
// the threshold is three tenths; and for figures that a single hiccup of the machine determines
// (the longest operation, the last thousandth of lateness), it is a factor of two.
#pragma once

#include <string>
#include <vector>

#include "results.h"

namespace verge::bench {

struct change {
  result before;
  result after;
  /// New over old.
  double ratio = 1;
  bool worse = false;
};

struct comparison {
  std::vector<change> changes;
  /// How many figures are in both reports, and what is in one only.
  std::size_t compared = 0;
  std::size_t only_before = 0;
  std::size_t only_after = 0;
  /// Differences between the machines: "kernel: Linux 6.1 -> Linux 6.18".
  std::vector<std::string> machine;
};

comparison compare(const run_report& before, const run_report& after);
std::string describe(const comparison& c);

}  // namespace verge::bench
