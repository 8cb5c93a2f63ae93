// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api.h"
#include "task_json.h"

/// One request while it is read: the parts of its path, its query, its body.
namespace verge::server::web {

class call {
 public:
  /// `parts` are the values of what the route's pattern has in braces.
  call(const http::request& r, const api_settings& limits, std::vector<std::string> parts);

  const http::request& request() const noexcept { return request_; }
  const api_settings& limits() const noexcept { return limits_; }

  /// The tube of the path.
  std::string tube() const;
  std::string key() const;
  task_id id() const;
  const std::string& part(std::size_t i) const { return parts_.at(i); }

  /// A parameter of the query. What was not asked for when finish_query() is called is refused.
  std::optional<std::string> parameter(const char* name);
  std::uint64_t number(const char* name, std::uint64_t otherwise, std::uint64_t least,
                       std::uint64_t most);
  bool flag(const char* name);
  void finish_query() const;

  /// The body, which has to be JSON.
  json body() const;
  /// The same, or an empty object if there is no body.
  json body_or_nothing() const;

 private:
  const http::request& request_;
  const api_settings& limits_;
  std::vector<std::string> parts_;
  std::map<std::string, std::string> query_;
  std::vector<std::string_view> known_;
};

[[noreturn]] void refuse_parameter(const char* name, const std::string& detail);

}  // namespace verge::server::web
