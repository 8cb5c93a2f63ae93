// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace verge::server {

/// `verge cluster`: the servers that share a database, and which shards each has.
class cluster_command {
 public:
  explicit cluster_command(CLI::App& tool);
  bool parsed() const { return command_->parsed(); }
  int run();

 private:
  CLI::App* command_;
  std::string store_;
  bool shards_{false};
};

}  // namespace verge::server
