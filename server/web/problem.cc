// SPDX-License-Identifier: Apache-2.0

#include "problem.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace verge::server::web {

namespace {

using pair = std::pair<std::string_view, std::string_view>;
constexpr std::array titles{
    pair{"bad-http", "The request is not valid HTTP"},
    pair{"bad-json", "The body is not valid JSON"},
    pair{"bad-value", "A value is not what it has to be"},
    pair{"unknown-field", "The body has a field that is not known"},
    pair{"unknown-parameter", "The query has a parameter that is not known"},
    pair{"no-such-path", "There is nothing at this path"},
    pair{"method-not-allowed", "The path does not know this method"},
    pair{"not-found", "There is no such task, tube or key"},
    pair{"taken", "A worker has the task"},
    pair{"exists", "A task with this key exists"},
    pair{"stale-lease", "The lease has ended"},
    pair{"too-large", "The body is too large"},
    pair{"media-type", "The body is not JSON by its Content-Type"},
    pair{"idempotency-mismatch", "The Idempotency-Key was used for another request"},
    pair{"idempotency-busy", "The first request with this Idempotency-Key is not answered yet"},
    pair{"cross-site", "The request comes from another site's page"},
    pair{"wrong-host", "The request was sent to another host"},
    pair{"unauthorized", "A token is needed"},
    pair{"forbidden", "The token does not allow this"},
    pair{"too-many-requests", "The token's limit is reached"},
    pair{"tube-full", "The tube takes no more tasks"},
    pair{"no-push", "The tube's tasks are not pushed"},
    pair{"too-many", "There are too many of these"},
    pair{"draining", "The server takes no more tasks"},
    pair{"store-failed", "The server cannot write"},
    pair{"overloaded", "The server has no room for this now"},
};

}  // namespace

std::string_view title_of(std::string_view type) noexcept {
  for (const auto& [name, title] : titles) {
    if (name == type) return title;
  }
  return "Error";
}

http::response response_of(const problem& p) {
  nlohmann::ordered_json body;
  body["type"] = "urn:verge:problem:" + std::string(p.type);
  body["title"] = title_of(p.type);
  body["status"] = p.status;
  body["detail"] = p.detail;
  if (!p.where.empty()) body["where"] = p.where;
  using handler = nlohmann::ordered_json::error_handler_t;
  return {.status = p.status,
          .content_type = "application/problem+json",
          .headers = p.headers,
          .body = body.dump(-1, ' ', false, handler::replace) + "\n"};
}

}  // namespace verge::server::web
