// SPDX-License-Identifier: Apache-2.0

#include "collector.h"

#include <algorithm>
#include <array>

namespace verge::bench {
namespace {

/// Where a curve has its points: dense towards the end, where systems differ.
constexpr std::array percentiles = {0.,  1.,  5.,   10.,  25.,  50.,   75.,   90., 95.,
                                    98., 99., 99.5, 99.8, 99.9, 99.95, 99.99, 100.};

}  // namespace

collector::gathered& collector::entry(const subject& of) {
  const auto found =
      std::find_if(all_.begin(), all_.end(), [&](const gathered& g) { return g.of == of; });
  if (found != all_.end()) return *found;
  all_.push_back({.of = of, .values = {}, .late_us = {}});
  return all_.back();
}

void collector::add(const subject& of, const answer& a) {
  gathered& g = entry(of);
  for (const auto& [metric, value] : a.metrics) g.values[metric].push_back(value);
  if (a.late_ns.empty()) return;
  std::vector<double> late;
  for (const std::int64_t ns : a.late_ns) late.push_back(static_cast<double>(ns) * 1e-3);
  g.late_us.insert(g.late_us.end(), late.begin(), late.end());
  std::sort(late.begin(), late.end());
  g.values["late_p50_us"].push_back(quantile(late, 0.5));
  g.values["late_p99_us"].push_back(quantile(late, 0.99));
  g.values["late_p999_us"].push_back(quantile(late, 0.999));
  const auto early = std::lower_bound(late.begin(), late.end(), 0.0) - late.begin();
  g.values["early_count"].push_back(static_cast<double>(early));
}

void collector::finish(run_report& report) const {
  for (const gathered& g : all_) {
    for (const metric_info& m : all_metrics()) {
      const auto found = g.values.find(m.name);
      if (found == g.values.end()) continue;
      report.results.push_back({.of = g.of, .metric = m.name, .value = spread_of(found->second)});
    }
    if (g.late_us.empty()) continue;
    std::vector<double> sorted = g.late_us;
    std::sort(sorted.begin(), sorted.end());
    lateness_curve curve{.of = g.of, .points = {}};
    for (const double p : percentiles) curve.points.emplace_back(p, quantile(sorted, p / 100));
    report.curves.push_back(curve);
  }
}

}  // namespace verge::bench
