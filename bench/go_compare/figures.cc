// SPDX-License-Identifier: Apache-2.0

#include "figures.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace verge::bench {
namespace {

/// The smallest value that a share of `values` does not exceed.
double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto rank = std::ceil(share * static_cast<double>(values.size()));
  const auto at = values.begin() + std::max<std::ptrdiff_t>(0, std::lrint(rank) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

double mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

const char* name_of(statistic s) {
  switch (s) {
    case statistic::per_operation:
      return "per operation";
    case statistic::mean_late:
      return "late, mean";
    case statistic::p50_late:
      return "late, p50";
    case statistic::p99_late:
      return "late, p99";
  }
  return "?";
}

double evaluate(statistic s, const std::vector<figures>& rounds) {
  std::vector<double> values;
  for (const figures& round : rounds) {
    if (s == statistic::per_operation) {
      values.push_back(round.ns_per_operation);
    } else {
      values.insert(values.end(), round.late_ns.begin(), round.late_ns.end());
    }
  }
  switch (s) {
    case statistic::mean_late:
      return mean(values);
    case statistic::p99_late:
      return quantile(std::move(values), 0.99);
    default:
      return quantile(std::move(values), 0.5);
  }
}

}  // namespace verge::bench
