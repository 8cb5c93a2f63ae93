// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace verge::server::bench {

struct tasks_options {
  std::string verge;           ///< the path of the verge tool
  std::string directory{"."};  ///< where scratch directories are made: the disk that is measured
  int rounds{5};
  double seconds{2};
  bool quick{false};
  std::vector<std::string> only;  ///< parts, as http; empty: all
  std::string json;
  unsigned long long many{20'000'000};
  std::string store{"rocksdb"};           ///< or postgres, see postgres_bench.h
  unsigned long long deletes{1'000'000};  ///< postgres: after which the work is measured again

  bool wants(const std::string& part) const;
};

/// Measures the task server and its peers in turns, and prints a table.
int run_tasks_bench(const tasks_options& options);

}  // namespace verge::server::bench
