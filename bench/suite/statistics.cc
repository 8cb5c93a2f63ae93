// SPDX-License-Identifier: Apache-2.0

#include "statistics.h"

#include <algorithm>
#include <cmath>

namespace verge::bench {

spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {.median = median, .min = values.front(), .max = values.back(), .runs = values.size()};
}

double quantile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const auto rank = std::llround(std::ceil(share * static_cast<double>(sorted.size())));
  const auto at = std::clamp<long long>(rank - 1, 0, static_cast<long long>(sorted.size()) - 1);
  return sorted[static_cast<std::size_t>(at)];
}

}  // namespace verge::bench
