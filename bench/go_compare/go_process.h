// Go's side of the comparison: the program in bench/go, built where Go is installed, started once,
// and asked for one round at a time over its standard input and output. bench/go/main.go describes
// the lines that are exchanged.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "figures.h"

namespace verge::bench {

class go_process {
 public:
  /// Builds the program in `source` to `binary` and starts it. Throws std::runtime_error with a
  /// text that says what to do, above all if there is no Go.
  go_process(const std::filesystem::path& source, const std::filesystem::path& binary);
  go_process(const go_process&) = delete;
  go_process& operator=(const go_process&) = delete;
  /// The end of its input ends the program.
  ~go_process();

  /// Runs one round of a workload there. Throws std::runtime_error if the program fails.
  figures run(const std::string& workload, const parameters& p);
  const std::string& version() const { return version_; }
  pid_t pid() const { return pid_; }

 private:
  using stream = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

  std::string ask(const std::string& request);

  pid_t pid_{-1};
  stream requests_{nullptr, &std::fclose};
  stream answers_{nullptr, &std::fclose};
  std::string version_;
};

}  // namespace verge::bench
