// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// The verge tool as a child process: a server that can be killed, and commands that end.
namespace verge::crash {

using environment = std::vector<std::pair<std::string, std::string>>;

/// A directory of its own, removed with everything in it. In memory where that is possible: what a
/// disk would lose is decided by the tests, not by the disk.
class scratch {
 public:
  enum class on : std::uint8_t { memory, disk };
  explicit scratch(on where = on::memory);
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;
  ~scratch();
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

struct ended {
  int status{0};      ///< of exit, or minus the number of the signal
  std::string out;    ///< what it has printed, apart from the first line of a server
  std::string error;  ///< and to stderr
};

/// Runs a program to its end.
ended run(const std::vector<std::string>& command, const environment& more = {});

class server_process {
 public:
  /// `verge serve` on `directory`, on a port of loopback that the system chooses. `more` arguments
  /// and variables of the environment.
  explicit server_process(const std::string& directory, std::vector<std::string> more = {},
                          const environment& variables = {});
  server_process(const server_process&) = delete;
  server_process& operator=(const server_process&) = delete;
  ~server_process();

  /// Whether it serves. It does not if it has ended before it could.
  bool serves() const noexcept { return port_ != 0; }
  std::uint16_t port() const noexcept { return port_; }
  pid_t pid() const noexcept { return pid_; }
  bool is_running();

  /// kill -9.
  void kill();
  /// SIGTERM, and what it says and returns.
  ended stop();
  /// Waits until it has ended of itself.
  ended wait();

 private:
  pid_t pid_{-1};
  std::uint16_t port_{0};
  int out_{-1};
  int error_{-1};
  std::optional<int> status_;
};

/// The verge tool that was built with the tests, or another one: VERGE_CRASH_TOOL.
std::string tool();
/// With the recorder loaded.
environment with_recorder(environment more);

}  // namespace verge::crash
