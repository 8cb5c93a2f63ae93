// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace verge::server {

/// `verge token add|list|revoke`: the file of tokens that `verge serve --tokens` reads.
class token_command {
 public:
  explicit token_command(CLI::App& tool);
  bool parsed() const { return token_->parsed(); }
  int run();

 private:
  int add();
  int list() const;
  int revoke();

  CLI::App* token_;
  CLI::App* add_;
  CLI::App* list_;
  CLI::App* revoke_;
  std::string file_{"verge-tokens.json"};
  std::string name_;
  std::vector<std::string> scopes_;
  std::vector<std::string> tubes_;
  std::string expires_;
  std::uint32_t per_second_{0};
};

}  // namespace verge::server
