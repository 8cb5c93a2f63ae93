#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>

namespace verge::server {

/// `verge top`: the server and its tubes in a terminal, renewed every second.
class top_command {
 public:
  explicit top_command(CLI::App& tool);
  bool parsed() const { return top_->parsed(); }
  int run();

 private:
  CLI::App* top_;
  std::string at_{"127.0.0.1:11300"};
  std::string token_;
  double every_{1};
  unsigned times_{0};
  unsigned rows_{0};
};

}  // namespace verge::server
