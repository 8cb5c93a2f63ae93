// SPDX-License-Identifier: Apache-2.0
// The comparison as a table, line by line while it runs, and as JSON at its end.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "figures.h"
#include "idle.h"

namespace verge::bench {

/// One line: a number of verge's beside the same of Go's.
struct comparison {
  std::string workload;
  statistic what;
  double verge_ns;
  double go_ns;  ///< 0 where there is no Go.
  double goal;   ///< How many times better than Go verge is meant to be.

  double ratio() const { return verge_ns > 0 ? go_ns / verge_ns : 0; }
};

/// What both did while there was nothing to do.
struct idle_comparison {
  std::chrono::milliseconds duration;
  idleness verge;
  std::optional<idleness> go;  ///< none where there is no Go.
};

void print_heading(const std::string& go_version, int processors, int rounds);
void print(const comparison& line);
void print(const idle_comparison& idle);
void print_summary(const std::vector<comparison>& lines);

/// Both throw std::runtime_error if the file cannot be written; the first is a check before minutes
/// of measuring.
void check_writable(const std::filesystem::path& file);
void write_json(const std::filesystem::path& file, const std::string& go_version, int processors,
                int rounds, const std::vector<comparison>& lines, const idle_comparison& idle);

}  // namespace verge::bench
