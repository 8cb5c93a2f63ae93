// SPDX-License-Identifier: Apache-2.0
// Go's side of the comparison: the program in bench/go, built where Go is installed, started once,
// and asked for one round at a time over its standard input and output. bench/go/main.go describes
// the lines that are exchanged.
#pragma once

#include <filesystem>
#include <string>

#include "../suite/child_process.h"
#include "figures.h"

namespace verge::bench {

class go_process {
 public:
  /// Builds the program in `source` to `binary` and starts it. Throws std::runtime_error with a
  /// text that says what to do, above all if there is no Go.
  go_process(const std::filesystem::path& source, const std::filesystem::path& binary);

  /// Runs one round of a workload there. Throws std::runtime_error if the program fails.
  figures run(const std::string& workload, const parameters& p);
  const std::string& version() const { return version_; }
  pid_t pid() const { return process_.pid(); }

 private:
  std::string ask(const std::string& request);

  child_process process_;
  std::string version_;
};

}  // namespace verge::bench
