// SPDX-License-Identifier: Apache-2.0

#include "table.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "systems.h"
#include "workloads.h"

namespace verge::bench {
namespace {

bool is_verge(const std::string& system) { return system.starts_with("verge/"); }

bool same_work(const result& a, const result& b) {
  return a.of.workload == b.of.workload && a.of.timers == b.of.timers &&
         a.of.threads == b.of.threads && a.metric == b.metric;
}

/// Three digits that count.
std::string figure(double value) {
  if (value >= 1e6) return fmt::format("{:.2f}M", value * 1e-6);
  if (value >= 1e4) return fmt::format("{:.1f}k", value * 1e-3);
  if (value >= 99.95 || value == 0) return fmt::format("{:.0f}", value);
  if (value >= 9.995) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

/// The shown value of a figure. For the longest operation it is the least of the repetitions: the
/// others include lost cores.
double shown(const result& r) { return r.metric == "longest_ns" ? r.value.min : r.value.median; }

std::string cell(const run_report& report, const result& r) {
  std::string text = figure(shown(r));
  if (r.value.runs > 1) text += fmt::format(" [{}-{}]", figure(r.value.min), figure(r.value.max));
  const auto best = best_peer(report, r);
  if (best && shown(*best) > 0 && shown(r) > 0) {
    text += fmt::format(" {:.2f}x", shown(r) / shown(*best));
  }
  return text;
}

using work = std::pair<std::size_t, unsigned>;  // timers, threads

std::string heading(const work& w) {
  std::string text = short_number(w.first);
  if (w.second != 1) text += fmt::format(", {} threads", w.second);
  return text;
}

std::string table(const run_report& report, const std::vector<const result*>& rows) {
  std::set<work> columns;
  std::vector<std::string> systems;
  for (const result* r : rows) {
    columns.insert({r->of.timers, r->of.threads});
    if (std::find(systems.begin(), systems.end(), r->of.system) == systems.end()) {
      systems.push_back(r->of.system);
    }
  }
  constexpr int width = 28;
  std::string text = fmt::format("{:22}", "");
  for (const work& c : columns) text += fmt::format("{:>{}}", heading(c), width);
  text += "\n";
  for (const std::string& s : systems) {
    text += fmt::format("{:22}", s);
    for (const work& c : columns) {
      const auto found = std::find_if(rows.begin(), rows.end(), [&](const result* r) {
        return r->of.system == s && r->of.timers == c.first && r->of.threads == c.second;
      });
      text += fmt::format("{:>{}}", found == rows.end() ? "-" : cell(report, **found), width);
    }
    text += "\n";
  }
  return text;
}

}  // namespace

std::optional<result> best_peer(const run_report& report, const result& like) {
  std::optional<result> best;
  const bool less = metric_named(like.metric).less_is_better;
  for (const result& r : report.results) {
    if (is_verge(r.of.system) || r.of.system == reference_system || !same_work(r, like)) continue;
    if (!best || (less ? shown(r) < shown(*best) : shown(r) > shown(*best))) best = r;
  }
  return best;
}

std::string short_number(std::size_t n) {
  if (n != 0 && n % 1'000'000 == 0) return std::to_string(n / 1'000'000) + "M";
  if (n != 0 && n % 1'000 == 0) return std::to_string(n / 1'000) + "k";
  return std::to_string(n);
}

std::string tables(const run_report& report) {
  std::string text;
  for (const workload_info& w : all_workloads()) {
    for (const metric_info& m : all_metrics()) {
      std::vector<const result*> rows;
      for (const result& r : report.results) {
        if (r.of.workload == w.name && r.metric == m.name) rows.push_back(&r);
      }
      if (rows.empty()) continue;
      text += fmt::format("\n{}, {} ({})\n", w.name, m.name, w.what);
      text += table(report, rows);
    }
  }
  return text;
}

}  // namespace verge::bench
