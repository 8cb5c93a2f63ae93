// SPDX-License-Identifier: Apache-2.0
// From samples to figures.
#pragma once

#include <cstddef>
#include <vector>

namespace verge::bench {

struct spread {
  double median = 0;
  double min = 0;
  double max = 0;
  std::size_t runs = 0;
};

/// Of an even number of values the median is the mean of the two in the middle. Of none all is 0.
spread spread_of(std::vector<double> values);

/// The smallest value that a share of them (0 to 1) does not exceed; 0 of none. They are sorted.
double quantile(const std::vector<double>& sorted, double share);

}  // namespace verge::bench
