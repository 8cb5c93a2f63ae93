// SPDX-License-Identifier: Apache-2.0

#include "api.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "../text/coding.h"
#include "operations.h"
#include "problem.h"

namespace verge::server::web {

namespace {

struct route {
  std::string_view method;
  std::string_view pattern;
  scope needs;
  operation (*plan)(call&);
};

constexpr std::array routes{
    route{"POST", "/v1/tubes/{tube}/tasks", scope::put, &put_tasks},
    route{"GET", "/v1/tubes/{tube}/tasks", scope::read, &list_tasks},
    route{"GET", "/v1/tubes/{tube}/keys/{key}", scope::read, &show_key},
    route{"PUT", "/v1/tubes/{tube}/keys/{key}", scope::put, &put_key},
    route{"DELETE", "/v1/tubes/{tube}/keys/{key}", scope::put, &cancel_key},
    route{"POST", "/v1/tubes/{tube}/reserve", scope::work, &reserve},
    route{"POST", "/v1/leases/{lease}/ack", scope::work, &ack},
    route{"POST", "/v1/leases/{lease}/release", scope::work, &release_lease},
    route{"POST", "/v1/leases/{lease}/bury", scope::work, &bury_lease},
    route{"POST", "/v1/leases/{lease}/touch", scope::work, &touch_lease},
    route{"GET", "/v1/tasks/{id}", scope::read, &show_task},
    route{"PATCH", "/v1/tasks/{id}", scope::put, &reschedule_task},
    route{"DELETE", "/v1/tasks/{id}", scope::put, &cancel_task},
    route{"POST", "/v1/tasks/{id}/kick", scope::work, &kick_task},
    route{"GET", "/v1/tubes", scope::read, &list_tubes},
    route{"GET", "/v1/tubes/{tube}", scope::read, &show_tube},
    route{"POST", "/v1/tubes/{tube}/pause", scope::admin, &pause_tube},
    route{"POST", "/v1/tubes/{tube}/kick", scope::work, &kick_tube},
    route{"PUT", "/v1/tubes/{tube}/limits", scope::admin, &limit_tube},
    route{"GET", "/v1/tubes/{tube}/push", scope::read, &show_push},
    route{"PUT", "/v1/tubes/{tube}/push", scope::admin, &set_push},
    route{"DELETE", "/v1/tubes/{tube}/push", scope::admin, &clear_push},
    route{"GET", "/v1/schedules", scope::read, &list_schedules},
    route{"GET", "/v1/schedules/{name}", scope::read, &show_schedule},
    route{"PUT", "/v1/schedules/{name}", scope::put, &set_schedule},
    route{"DELETE", "/v1/schedules/{name}", scope::put, &remove_schedule},
    route{"GET", "/v1/server", scope::read, &show_server},
    route{"POST", "/v1/server/drain", scope::admin, &drain_server},
    route{"GET", "/v1/forecast", scope::read, &show_forecast},
    route{"GET", "/v1/cluster", scope::read, &show_cluster},
    route{"GET", "/v1/events", scope::read, &stream_events},
    route{"GET", "/metrics", scope::read, &show_metrics},
    route{"GET", "/health", scope::open, &show_health},
    route{"GET", "/ready", scope::open, &show_readiness},
    route{"GET", "/openapi.json", scope::open, &show_contract},
    route{"GET", "/", scope::open, &show_page},
};

/// The values of what is in braces, or nothing if the path is not of this pattern.
std::optional<std::vector<std::string>> match(std::string_view pattern, std::string_view path) {
  std::vector<std::string> parts;
  for (;;) {
    const auto pattern_end = std::min(pattern.find('/', 1), pattern.size());
    const auto path_end = std::min(path.find('/', 1), path.size());
    const std::string_view wanted = pattern.substr(0, pattern_end);
    const std::string_view given = path.substr(0, path_end);
    if (wanted.starts_with("/{")) {
      auto value = percent_decoded(given.substr(std::min<std::size_t>(1, given.size())));
      if (!value || value->empty()) return std::nullopt;
      parts.push_back(std::move(*value));
    } else if (wanted != given) {
      return std::nullopt;
    }
    pattern.remove_prefix(pattern_end);
    path.remove_prefix(path_end);
    if (pattern.empty() != path.empty()) return std::nullopt;
    if (pattern.empty()) return parts;
  }
}

[[noreturn]] void refuse_path(const http::request& r, const std::string& allowed) {
  if (allowed.empty()) {
    throw refused({.status = 404,
                   .type = "no-such-path",
                   .detail = "there is nothing at " + std::string(r.path()) +
                             "; /openapi.json says what there is"});
  }
  throw refused({.status = 405,
                 .type = "method-not-allowed",
                 .detail = std::string(r.path()) + " knows " + allowed,
                 .headers = "Allow: " + allowed + "\r\n"});
}

}  // namespace

operation plan(const http::request& r, const api_settings& limits) {
  const std::string_view method = r.method() == "HEAD" ? "GET" : r.method();
  std::string allowed;
  for (const route& one : routes) {
    auto parts = match(one.pattern, r.path());
    if (!parts) continue;
    if (one.method != method) {
      allowed.append(allowed.empty() ? "" : ", ").append(one.method);
      if (one.method == "GET") allowed.append(", HEAD");
      continue;
    }
    call c(r, limits, std::move(*parts));
    operation op = one.plan(c);
    c.finish_query();
    op.needs = one.needs;
    op.route = one.pattern;
    if (one.pattern.starts_with("/v1/tubes/{tube}")) op.tube = c.tube();
    return op;
  }
  refuse_path(r, allowed);
}

std::vector<route_name> all_routes() {
  std::vector<route_name> names;
  names.reserve(std::size(routes));
  for (const route& one : routes) names.push_back({one.method, one.pattern});
  return names;
}

}  // namespace verge::server::web
