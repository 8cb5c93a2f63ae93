// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace verge::server {

/// `verge move`: all tasks from a directory to a database, or back.
class move_command {
 public:
  explicit move_command(CLI::App& tool);
  bool parsed() const { return command_->parsed(); }
  int run();

 private:
  CLI::App* command_;
  std::string from_;
  std::string to_;
  std::uint32_t shards_{16};
};

}  // namespace verge::server
