// SPDX-License-Identifier: Apache-2.0
// `verge bench`: its arguments and its execution.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace verge::bench {

struct run_report;

class bench_command {
 public:
  /// Adds itself to the tool.
  explicit bench_command(CLI::App& tool);

  /// Called after the arguments were parsed. Returns the exit status: 0, or 1 if a comparison found
  /// something worse. Throws std::exception on errors.
  int run() const;

 private:
  run_report measure() const;
  run_report merge() const;
  int compare() const;
  void write(const run_report& report) const;

  std::vector<std::string> engines_{"all"};
  std::vector<std::string> peers_{"all"};
  std::vector<std::string> workloads_{"all"};
  std::vector<std::string> timers_;
  std::vector<std::string> threads_{"1", "2"};
  unsigned repeat_ = 0;
  bool quick_ = false;
  std::string json_;
  std::string html_;
  std::vector<std::string> compare_;
  std::vector<std::string> merge_;
};

}  // namespace verge::bench
