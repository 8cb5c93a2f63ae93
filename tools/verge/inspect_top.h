// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace verge::server {

/// An inspector (verge/inspect.h) as `verge top` shows it.
class inspect_top {
 public:
  /// The address is "127.0.0.1:6060". Nothing if what answers there is no inspector.
  static std::optional<inspect_top> find(const std::string& at, const std::string& token);

  /// Asks once more, and returns the text: at most so many rows of labels, tasks and processors.
  std::string look(std::size_t rows);

 private:
  inspect_top(std::string at, std::string token) : at_(std::move(at)), token_(std::move(token)) {}

  std::string at_;
  std::string token_;
  std::uint64_t since_{0};
  nlohmann::json last_second_;
};

/// What it shows of a reply; `second` is the last of its history, or null.
std::string draw_inspector(const nlohmann::json& now, const nlohmann::json& second,
                           std::size_t rows);

}  // namespace verge::server
