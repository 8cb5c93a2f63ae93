// SPDX-License-Identifier: Apache-2.0

#include "origin.h"

#include <algorithm>

#include "http1/request_syntax.h"
#include "problem.h"

namespace verge::server::web {

namespace {

bool only_reads(std::string_view method) {
  return method == "GET" || method == "HEAD" || method == "OPTIONS";
}

/// "localhost:8080" without the port; an address in brackets keeps them.
std::string_view without_port(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, std::min(host.find(']') + 1, host.size()));
  return host.substr(0, host.find(':'));
}

bool is_loopback_name(std::string_view name) {
  if (http::same_name(name, "localhost") || name == "[::1]") return true;
  return name.starts_with("127.") &&
         name.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

void check_origin(const http::request& r) {
  if (only_reads(r.method())) return;
  const std::string_view site = r.header("sec-fetch-site");
  std::string_view origin = r.header("origin");
  bool foreign = !site.empty() && site != "same-origin" && site != "none";
  if (!origin.empty()) {
    const auto scheme = origin.find("://");
    foreign |= scheme == origin.npos || !http::same_name(origin.substr(scheme + 3), r.host());
  }
  if (!foreign) return;
  throw refused({.status = 403,
                 .type = "cross-site",
                 .detail = "a page of another site must not change anything here: send the request "
                           "from a program, or from this server's own page"});
}

void check_host(const http::request& r, const std::vector<std::string>& also) {
  const std::string_view name = without_port(r.host());
  if (name.empty() || is_loopback_name(name)) return;
  const auto same = [&](const std::string& one) { return http::same_name(one, name); };
  if (std::any_of(also.begin(), also.end(), same)) return;
  throw refused({.status = 421,
                 .type = "wrong-host",
                 .detail = "this server listens on loopback only and is not called '" +
                           std::string(name) + "': use localhost, or start it with --http-host"});
}

}  // namespace verge::server::web
