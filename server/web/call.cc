// SPDX-License-Identifier: Apache-2.0

#include "call.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "../text/coding.h"
#include "http1/request_syntax.h"
#include "problem.h"

namespace verge::server::web {

namespace {

std::map<std::string, std::string> parse_query(std::string_view query) {
  std::map<std::string, std::string> found;
  while (!query.empty()) {
    const auto end = std::min(query.find('&'), query.size());
    const std::string_view one = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    if (one.empty()) continue;
    const auto equals = std::min(one.find('='), one.size());
    auto name = percent_decoded(one.substr(0, equals), true);
    auto value = percent_decoded(one.substr(std::min(equals + 1, one.size())), true);
    if (!name || !value) {
      throw refused({.type = "bad-value", .detail = "the query has a % without two hex digits"});
    }
    if (!found.emplace(*name, std::move(*value)).second) {
      throw refused({.type = "bad-value",
                     .detail = "the query has '" + *name + "' twice: leave one out",
                     .where = *name});
    }
  }
  return found;
}

/// Only JSON: a page of another site can send other types without asking first.
bool is_json_type(std::string_view type) {
  const std::string_view name = type.substr(0, type.find_first_of("; \t"));
  return http::same_name(name, "application/json");
}

template <class T>
std::optional<T> parse_number(std::string_view text) {
  T n = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, n);
  if (text.empty() || error != std::errc() || at != end) return std::nullopt;
  return n;
}

}  // namespace

void refuse_parameter(const char* name, const std::string& detail) {
  throw refused({.type = "bad-value", .detail = std::string(name) + " " + detail, .where = name});
}

call::call(const http::request& r, const api_settings& limits, std::vector<std::string> parts)
    : request_(r), limits_(limits), parts_(std::move(parts)), query_(parse_query(r.query())) {}

std::string call::tube() const {
  const std::string& name = parts_.at(0);
  if (!is_name(name.data(), name.size())) {
    refuse_parameter("tube",
                     "has to be 1 to 200 of A-Z a-z 0-9 - + / ; . $ _ ( ), not beginning with a "
                     "hyphen; write a slash as %2F");
  }
  return name;
}

std::string call::key() const {
  if (!is_key(parts_.at(1))) {
    refuse_parameter("key", "has to have 1 to 200 bytes, without spaces and control characters");
  }
  return parts_.at(1);
}

task_id call::id() const {
  const auto n = parse_number<task_id>(parts_.at(0));
  if (!n || *n == 0) refuse_parameter("id", "has to be the number of a task, like 17");
  return *n;
}

std::optional<std::string> call::parameter(const char* name) {
  known_.emplace_back(name);
  const auto found = query_.find(name);
  if (found == query_.end()) return std::nullopt;
  return found->second;
}

std::uint64_t call::number(const char* name, std::uint64_t otherwise, std::uint64_t least,
                           std::uint64_t most) {
  const auto given = parameter(name);
  if (!given) return otherwise;
  const auto n = parse_number<std::uint64_t>(*given);
  if (!n || *n < least || *n > most) {
    refuse_parameter(name, fmt::format("has to be a whole number from {} to {}", least, most));
  }
  return *n;
}

bool call::flag(const char* name) {
  const auto given = parameter(name);
  if (!given || *given == "false") return false;
  if (*given != "true") refuse_parameter(name, "has to be true or false");
  return true;
}

void call::finish_query() const {
  for (const auto& [name, value] : query_) {
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    std::string names;
    for (const std::string_view k : known_) names.append(names.empty() ? "" : ", ").append(k);
    throw refused({.type = "unknown-parameter",
                   .detail = "there is no parameter '" + name +
                             "' here; there are: " + (names.empty() ? "none" : names),
                   .where = name});
  }
}

json call::body() const {
  if (!is_json_type(request_.header("content-type"))) {
    throw refused({.status = 415,
                   .type = "media-type",
                   .detail = "send JSON, and the header Content-Type: application/json"});
  }
  try {
    return json::parse(request_.body());
  } catch (const json::parse_error& e) {
    throw refused(
        {.type = "bad-json",
         .detail = fmt::format("the body is no JSON: something is wrong at byte {}", e.byte)});
  }
}

json call::body_or_nothing() const {
  if (request_.body().empty()) return json::object();
  return body();
}

}  // namespace verge::server::web
