// SPDX-License-Identifier: Apache-2.0

#include "request_syntax.h"

#include <algorithm>
#include <array>

namespace http {

namespace {

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
constexpr char small(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}
constexpr bool is_letter(char c) noexcept { return small(c) >= 'a' && small(c) <= 'z'; }
constexpr bool is_hex(char c) noexcept {
  return is_digit(c) || (small(c) >= 'a' && small(c) <= 'f');
}

bool all_digits(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(), is_digit);
}

/// Every "%" is followed by two hexadecimal digits, and never by two zeros.
bool has_good_escapes(std::string_view text) noexcept {
  for (auto at = text.find('%'); at != text.npos; at = text.find('%', at + 3)) {
    if (text.size() - at < 3 || !is_hex(text[at + 1]) || !is_hex(text[at + 2])) return false;
    if (text[at + 1] == '0' && text[at + 2] == '0') return false;
  }
  return true;
}

/// The characters of a name by RFC 3986: unreserved, sub-delims, and "%" of escapes.
constexpr auto name_characters = [] {
  std::array<bool, 256> table{};
  for (int c = 0; c < 128; ++c)
    table[static_cast<std::size_t>(c)] =
        is_letter(static_cast<char>(c)) || is_digit(static_cast<char>(c));
  for (const char c : std::string_view("-._~!$&'()*+,;=%"))
    table[static_cast<unsigned char>(c)] = true;
  return table;
}();

bool is_name(std::string_view text) noexcept {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return name_characters[static_cast<unsigned char>(c)];
  }) && has_good_escapes(text);
}

/// The characters between the brackets of an IPv6 address.
bool is_v6(std::string_view text) noexcept {
  return text.find(':') != text.npos && std::all_of(text.begin(), text.end(), [](char c) {
           return is_hex(c) || c == ':' || c == '.';
         });
}

}  // namespace

bool same_name(std::string_view a, std::string_view b) noexcept {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return small(x) == small(y); });
}

bool is_method_letter(char c) noexcept { return (c >= 'A' && c <= 'Z') || c == '-' || c == '_'; }

bool is_method(std::string_view text) noexcept {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_method_letter);
}

bool is_authority(std::string_view text) noexcept {
  if (text.starts_with('[')) {
    const auto end = text.find(']');
    if (end == text.npos || !is_v6(text.substr(1, end - 1))) return false;
    const std::string_view port = text.substr(end + 1);
    return port.empty() || (port.front() == ':' && all_digits(port.substr(1)));
  }
  const auto colon = std::min(text.find(':'), text.size());
  return is_name(text.substr(0, colon)) &&
         (colon == text.size() || all_digits(text.substr(colon + 1)));
}

bool is_length(std::string_view text) noexcept { return !text.empty() && all_digits(text); }

bool is_chunk_line(std::string_view line) noexcept {
  const auto end = std::find_if_not(line.begin(), line.end(), is_hex);
  if (end == line.begin()) return false;
  return end == line.end() || (*end == ';' && std::all_of(end, line.end(), [](char c) {
           return static_cast<unsigned char>(c) >= ' ' ? c != '\x7f' : c == '\t';
         }));
}

bool is_last_chunk(std::string_view line) noexcept {
  const auto end = std::find_if_not(line.begin(), line.end(), is_hex);
  return std::all_of(line.begin(), end, [](char c) { return c == '0'; });
}

std::optional<target_parts> split_target(std::string_view method,
                                         std::string_view target) noexcept {
  if (target == "*" && method == "OPTIONS") return target_parts{{}, target, {}};
  if (target.find('#') != target.npos) return {};
  target_parts parts;
  if (!target.starts_with('/')) {
    const auto colon = target.find("://");
    if (colon == target.npos) return {};
    const std::string_view scheme = target.substr(0, colon);
    if (!same_name(scheme, "http") && !same_name(scheme, "https")) return {};
    target.remove_prefix(colon + 3);
    const auto end = std::min(target.find_first_of("/?"), target.size());
    parts.authority = target.substr(0, end);
    if (!is_authority(parts.authority)) return {};
    target.remove_prefix(end);
  }
  const auto mark = std::min(target.find('?'), target.size());
  parts.path = target.substr(0, mark);
  if (!has_good_escapes(parts.path)) return {};
  if (parts.path.empty()) parts.path = "/";
  if (mark < target.size()) parts.query = target.substr(mark + 1);
  return parts;
}

}  // namespace http
