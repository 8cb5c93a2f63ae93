// SPDX-License-Identifier: Apache-2.0
// The results of a run, in memory and as JSON. workloads.md documents the JSON.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "statistics.h"

namespace verge::bench {

/// The version of the JSON: another number is another meaning.
inline constexpr int schema_version = 1;

/// What was measured: one system at one piece of work.
struct subject {
  std::string system;
  std::string workload;
  std::size_t timers = 0;
  unsigned threads = 1;
  auto operator<=>(const subject&) const = default;
};

/// One figure.
struct result {
  subject of;
  std::string metric;
  spread value;
};

/// How late the timers of all runs were: pairs of a percentile and microseconds.
struct lateness_curve {
  subject of;
  std::vector<std::pair<double, double>> points;
};

struct run_report {
  /// By name: "cpu", "kernel", "compiler", ... in the order of the alphabet.
  std::map<std::string, std::string> machine;
  /// By system.
  std::map<std::string, std::string> versions;
  /// What was skipped, by system, and why.
  std::map<std::string, std::string> skipped;
  std::vector<result> results;
  std::vector<lateness_curve> curves;
};

/// Everything that a row's metric may be, and whether less of it is better.
struct metric_info {
  const char* name;
  const char* unit;
  bool less_is_better;
};
const std::vector<metric_info>& all_metrics();
/// Throws std::invalid_argument for a name that is not there.
const metric_info& metric_named(const std::string& name);

std::string to_json(const run_report& report);
/// Throws std::runtime_error that says what is wrong with the text.
run_report from_json(const std::string& text);

/// Both throw std::runtime_error with the file's name and what to do.
run_report read_report(const std::filesystem::path& file);
void write_text(const std::filesystem::path& file, const std::string& text);
/// Checks this before minutes of measuring.
void check_writable(const std::filesystem::path& file);

/// One report with everything in it; of what is in several, the last counts.
run_report merged(const std::vector<run_report>& reports);

}  // namespace verge::bench
