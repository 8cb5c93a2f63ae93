// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace verge::server {

/// `verge put`, `reserve`, `peek`, `cancel`, `reschedule`, `kick`, `stats`, `drain`, `backup`: the
/// task server's client, for people and for scripts. Prints what the server says; the status is 0
/// if it did what was asked, and 1 if it did not.
class task_commands {
 public:
  explicit task_commands(CLI::App& tool);
  bool parsed() const;
  int run();

 private:
  CLI::App* add(CLI::App& tool, const char* name, const char* about);

  CLI::App* put_;
  CLI::App* reserve_;
  CLI::App* peek_;
  CLI::App* cancel_;
  CLI::App* reschedule_;
  CLI::App* kick_;
  CLI::App* stats_;
  CLI::App* drain_;
  CLI::App* backup_;
  std::string at_{"127.0.0.1:11300"};
  std::string tube_{"default"};
  std::string body_;
  std::string key_;
  std::string if_exists_{"keep"};
  std::string delay_{"0"};
  std::string ttr_{"60s"};
  std::string limit_{"0"};
  std::string backoff_;
  std::string dead_;
  std::string what_;
  std::uint32_t priority_{1024};
  std::uint32_t attempts_{0};
  std::uint64_t number_{0};
  bool remove_{false};
  bool off_{false};
};

}  // namespace verge::server
