// SPDX-License-Identifier: Apache-2.0

#include "url.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace verge::server::push {

namespace {

char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

bool begins_with(std::string_view text, std::string_view scheme) noexcept {
  return text.size() >= scheme.size() && std::equal(scheme.begin(), scheme.end(), text.begin(),
                                                    [](char a, char b) { return a == lower(b); });
}

bool is_name_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
}

bool is_v6_character(char c) noexcept {
  return (c >= 'a' && c <= 'f') || (c >= '0' && c <= '9') || c == ':' || c == '.';
}

/// Takes the host off the front of an authority; false if it is none.
bool take_host(std::string_view& in, std::string& host) {
  const bool bracketed = in.starts_with('[');
  const auto end = bracketed ? in.find(']') : std::min(in.find(':'), in.size());
  if (end == in.npos) return false;
  host.assign(in.substr(bracketed ? 1 : 0, bracketed ? end - 1 : end));
  std::transform(host.begin(), host.end(), host.begin(), lower);
  in.remove_prefix(bracketed ? end + 1 : end);
  constexpr std::size_t longest_host = 253;
  if (host.empty() || host.size() > longest_host) return false;
  return bracketed
             ? host.find(':') != host.npos && std::all_of(host.begin(), host.end(), is_v6_character)
             : std::all_of(host.begin(), host.end(), is_name_character);
}

}  // namespace

std::string url::authority() const {
  const bool bracketed = host.find(':') != host.npos;
  std::string text(bracketed ? "[" : "");
  text.append(host).append(bracketed ? "]" : "");
  if (port != (secure ? 443 : 80)) text.append(":").append(std::to_string(port));
  return text;
}

std::string url::receiver() const {
  std::string text = host;
  return text.append("|").append(std::to_string(port));
}

std::string url::text() const {
  std::string out = secure ? "https://" : "http://";
  return out.append(authority()).append(target);
}

std::optional<url> parse_url(std::string_view text) {
  if (text.size() > longest_url ||
      !std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; }) ||
      text.find_first_of("#\\\"<>^`{|}") != text.npos) {
    return std::nullopt;
  }
  url u;
  if (begins_with(text, "https://")) {
    u.secure = true;
    u.port = 443;
    text.remove_prefix(8);
  } else if (begins_with(text, "http://")) {
    text.remove_prefix(7);
  } else {
    return std::nullopt;
  }
  const auto end = std::min(text.find_first_of("/?"), text.size());
  std::string_view authority = text.substr(0, end);
  if (!take_host(authority, u.host)) return std::nullopt;
  if (!authority.empty()) {
    authority.remove_prefix(1);
    const char* const last = authority.data() + authority.size();
    const auto [at, error] = std::from_chars(authority.data(), last, u.port);
    if (error != std::errc() || at != last || u.port == 0) return std::nullopt;
  }
  const std::string_view target = text.substr(end);
  std::string path(target.starts_with('/') ? 0 : 1, '/');
  u.target = std::move(path.append(target));
  return u;
}

std::optional<url> redirected(const url& from, std::string_view location) {
  location = location.substr(0, location.find('#'));
  std::string whole;
  if (location.starts_with("//")) {
    whole.append(from.secure ? "https:" : "http:").append(location);
  } else if (location.starts_with('/')) {
    whole.append(from.secure ? "https://" : "http://").append(from.authority()).append(location);
  } else {
    whole = location;
  }
  auto to = parse_url(whole);
  if (to && from.secure && !to->secure) return std::nullopt;
  return to;
}

}  // namespace verge::server::push
