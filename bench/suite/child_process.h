// SPDX-License-Identifier: Apache-2.0
// A child program, controlled line by line over its standard input and output.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

namespace verge::bench {

/// There is no such program.
class program_not_found : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Runs a program to its end. Returns false if it failed; its output goes to our standard error.
bool run_program(const std::vector<std::string>& words, const std::string& folder = ".");

class child_process {
 public:
  /// Throws program_not_found, or std::runtime_error if it cannot be started.
  explicit child_process(const std::vector<std::string>& words);
  child_process(const child_process&) = delete;
  child_process& operator=(const child_process&) = delete;
  /// The end of its input ends the program; one that has not answered is killed.
  ~child_process();

  /// Sends a line and gives the line that comes back. Throws std::runtime_error if the program
  /// ends, or if it takes longer, or if a signal arrives meanwhile that wants this program to end.
  std::string ask(const std::string& line, std::chrono::seconds at_most = std::chrono::hours(1));
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  std::string name_;
  std::string unread_;
  pid_t pid_{-1};
  int requests_{-1};
  int answers_{-1};
  bool owes_an_answer_{false};
};

}  // namespace verge::bench
