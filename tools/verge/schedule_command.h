// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace verge::server {

/// `verge schedule set|show|list|remove`: tasks that recur, over HTTP; and `next`, which computes
/// when an expression comes, without a server.
class schedule_command {
 public:
  explicit schedule_command(CLI::App& tool);
  bool parsed() const { return schedule_->parsed(); }
  int run();

 private:
  int next() const;
  int set() const;
  int list() const;

  /// Sends a request and prints what is wrong, if something is. The body of the response otherwise.
  bool ask(const std::string& method, const std::string& target, const std::string& body,
           std::string& got) const;

  CLI::App* schedule_;
  CLI::App* set_;
  CLI::App* show_;
  CLI::App* list_;
  CLI::App* remove_;
  CLI::App* next_;
  std::string at_{"127.0.0.1:11380"};
  std::string token_;
  std::string name_;
  std::string when_;
  std::string zone_;
  std::string tube_{"default"};
  std::string body_;
  std::string missed_{"once"};
  std::string ttr_{"60s"};
  std::string from_;
  std::uint32_t priority_{1024};
  std::uint32_t count_{5};
};

}  // namespace verge::server
