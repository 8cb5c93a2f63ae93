// SPDX-License-Identifier: Apache-2.0

#include <inspect/request.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace verge::detail {

namespace {

bool is_token_character(char c) {
  constexpr std::string_view others = "!#$%&'*+-.^_`|~";
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         others.find(c) != std::string_view::npos;
}

bool is_visible(char c) { return c > 0x20 && c < 0x7f; }

bool equal_without_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
           return std::tolower(static_cast<unsigned char>(x)) ==
                  std::tolower(static_cast<unsigned char>(y));
         });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

/// "127.0.0.1:6060", "[::1]:6060", "localhost" without the port, in small letters.
std::string without_port(std::string_view host) {
  const auto colon = host.rfind(':');
  if (colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos) {
    host = host.substr(0, colon);
  }
  std::string name(host);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

/// Returns a status, 200 if the line is right.
int read_request_line(std::string_view line, inspect_request& to) {
  const auto first = line.find(' ');
  if (first == std::string_view::npos || first == 0) return 400;
  const auto second = line.find(' ', first + 1);
  if (second == std::string_view::npos) return 400;
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, second - first - 1);
  const std::string_view version = line.substr(second + 1);
  if (!std::all_of(method.begin(), method.end(), is_token_character)) return 400;
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return version.starts_with("HTTP/") && version.size() == 8 ? 505 : 400;
  }
  if (target.empty() || target.front() != '/' ||
      !std::all_of(target.begin(), target.end(), is_visible) ||
      target.find('#') != std::string_view::npos) {
    return 400;
  }
  if (method != "GET") return 405;
  const auto question = target.find('?');
  to.path = target.substr(0, question);
  if (question != std::string_view::npos) to.query = target.substr(question + 1);
  return 200;
}

int read_header(std::string_view line, inspect_request& to, bool& has_host) {
  const auto colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return 400;
  const std::string_view name = line.substr(0, colon);
  if (!std::all_of(name.begin(), name.end(), is_token_character)) return 400;
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (std::any_of(value.begin(), value.end(),
                  [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; })) {
    return 400;
  }
  if (equal_without_case(name, "host")) {
    if (std::exchange(has_host, true)) return 400;
    to.host = without_port(value);
  } else if (equal_without_case(name, "authorization")) {
    constexpr std::string_view bearer = "bearer ";
    if (value.size() > bearer.size() &&
        equal_without_case(value.substr(0, bearer.size()), bearer)) {
      to.authorization = trimmed(value.substr(bearer.size()));
    }
  } else if (equal_without_case(name, "transfer-encoding") ||
             (equal_without_case(name, "content-length") && value != "0")) {
    return 400;  // no request here has a body
  }
  return 200;
}

}  // namespace

parsed_request parse_inspect_request(std::string_view head) {
  parsed_request parsed;
  bool has_host = false;
  bool first = true;
  while (!head.empty()) {
    const auto end = head.find("\r\n");
    if (end == std::string_view::npos) break;
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(end + 2);
    if (!first && line.empty()) {
      if (!has_host) parsed.status = 400;
      return parsed;
    }
    const int status = first ? read_request_line(line, parsed.request)
                             : read_header(line, parsed.request, has_host);
    first = false;
    if (status != 200) {
      parsed.status = status;
      return parsed;
    }
  }
  parsed.status = 400;  // no empty line
  return parsed;
}

std::optional<std::string_view> query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(part.size() + 1, query.size()));
    if (part.size() <= name.size() || !part.starts_with(name) || part[name.size()] != '=') continue;
    const std::string_view value = part.substr(name.size() + 1);
    if (value.find_first_of("%+") != std::string_view::npos) return std::nullopt;
    return value;
  }
  return std::nullopt;
}

bool is_loopback_name(std::string_view host) {
  if (host == "localhost" || host == "[::1]" || host.ends_with(".localhost")) return true;
  // 127.x.y.z
  if (!host.starts_with("127.")) return false;
  return std::count(host.begin(), host.end(), '.') == 3 &&
         host.find_first_not_of("0123456789.") == std::string_view::npos;
}

bool same_token(std::string_view a, std::string_view b) noexcept {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i] ^ other));
  }
  return difference == 0;
}

}  // namespace verge::detail
