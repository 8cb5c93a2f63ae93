// SPDX-License-Identifier: Apache-2.0

#include "compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "table.h"

namespace verge::bench {
namespace {

double threshold(const result& before, const result& after) {
  if (before.metric == "longest_ns" || before.metric == "late_p999_us") return 1.0;
  return std::min(before.value.runs, after.value.runs) < 3 ? 0.3 : 0.1;
}

bool overlap(const spread& a, const spread& b) { return a.min <= b.max && b.min <= a.max; }

bool beyond_noise(const result& before, const result& after) {
  if (overlap(before.value, after.value)) return false;
  const double a = before.value.median;
  const double b = after.value.median;
  return std::max(a, b) > std::min(a, b) * (1 + threshold(before, after));
}

const result* find_like(const run_report& in, const result& like) {
  const auto found = std::find_if(in.results.begin(), in.results.end(), [&](const result& r) {
    return r.of == like.of && r.metric == like.metric;
  });
  return found == in.results.end() ? nullptr : &*found;
}

std::vector<std::string> machine_differences(const run_report& before, const run_report& after) {
  constexpr std::array<std::string_view, 7> matter = {"cpu",    "cores",    "memory", "kernel",
                                                      "system", "compiler", "flags"};
  std::vector<std::string> found;
  for (const std::string_view name : matter) {
    const auto a = before.machine.find(std::string(name));
    const auto b = after.machine.find(std::string(name));
    if (a == before.machine.end() || b == after.machine.end() || a->second == b->second) continue;
    found.push_back(fmt::format("{}: {} -> {}", name, a->second, b->second));
  }
  return found;
}

std::string line(const change& c) {
  const subject& s = c.after.of;
  return fmt::format("{:7} {:22} {:17} {:>5} {} thread{}  {:15} {:>12.1f} -> {:<12.1f} {:.2f}x\n",
                     c.worse ? "worse" : "better", s.system, s.workload, short_number(s.timers),
                     s.threads, s.threads == 1 ? " " : "s", c.after.metric, c.before.value.median,
                     c.after.value.median, c.ratio);
}

}  // namespace

comparison compare(const run_report& before, const run_report& after) {
  comparison c;
  c.machine = machine_differences(before, after);
  for (const result& b : after.results) {
    const result* a = find_like(before, b);
    if (a == nullptr) {
      ++c.only_after;
      continue;
    }
    ++c.compared;
    if (!beyond_noise(*a, b)) continue;
    const bool more = b.value.median > a->value.median;
    c.changes.push_back({.before = *a,
                         .after = b,
                         .ratio = a->value.median == 0 ? 0 : b.value.median / a->value.median,
                         .worse = more == metric_named(b.metric).less_is_better});
  }
  c.only_before = before.results.size() - c.compared;
  std::stable_sort(c.changes.begin(), c.changes.end(),
                   [](const change& x, const change& y) { return x.worse > y.worse; });
  return c;
}

std::string describe(const comparison& c) {
  std::string text;
  for (const std::string& difference : c.machine) {
    text += "not the same machine: " + difference + "\n";
  }
  for (const change& one : c.changes) text += line(one);
  const auto worse = std::count_if(c.changes.begin(), c.changes.end(),
                                   [](const change& one) { return one.worse; });
  text += fmt::format("{} figures compared: {} worse, {} better, the others within the noise\n",
                      c.compared, worse, static_cast<long>(c.changes.size()) - worse);
  if (c.only_before != 0) text += fmt::format("{} are in the old report only\n", c.only_before);
  if (c.only_after != 0) text += fmt::format("{} are in the new report only\n", c.only_after);
  return text;
}

}  // namespace verge::bench
