// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>

namespace verge::server {

/// `verge top`: the server and its tubes in a terminal, or a program with an inspector
/// (verge/inspect.h), renewed every second. What answers at the address decides.
class top_command {
 public:
  explicit top_command(CLI::App& tool);
  bool parsed() const { return top_->parsed(); }
  int run();

 private:
  std::size_t rows_that_fit(std::size_t otherwise, std::size_t above) const;
  void show(const std::string& text) const;

  CLI::App* top_;
  std::string at_{"127.0.0.1:11300"};
  std::string token_;
  double every_{1};
  unsigned times_{0};
  unsigned rows_{0};
};

}  // namespace verge::server
