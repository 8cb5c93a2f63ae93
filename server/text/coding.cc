// SPDX-License-Identifier: Apache-2.0

#include "coding.h"

#include <array>
#include <charconv>

namespace verge::server {

namespace {

constexpr std::string_view letters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int value_of_hex(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

/// Overlong forms, surrogates and what lies beyond U+10FFFF are no UTF-8.
bool is_utf8(std::string_view text) noexcept {
  for (std::size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    if (first < 0x80) {
      ++i;
      continue;
    }
    std::size_t more = 0;
    unsigned char low = 0x80;
    unsigned char high = 0xbf;
    if (first >= 0xc2 && first <= 0xdf) {
      more = 1;
    } else if (first >= 0xe0 && first <= 0xef) {
      more = 2;
      if (first == 0xe0) low = 0xa0;
      if (first == 0xed) high = 0x9f;
    } else if (first >= 0xf0 && first <= 0xf4) {
      more = 3;
      if (first == 0xf0) low = 0x90;
      if (first == 0xf4) high = 0x8f;
    } else {
      return false;
    }
    if (text.size() - i <= more) return false;
    for (std::size_t k = 1; k <= more; ++k) {
      const auto c = static_cast<unsigned char>(text[i + k]);
      if (c < low || c > high) return false;
      low = 0x80;
      high = 0xbf;
    }
    i += more + 1;
  }
  return true;
}

void append_json_text(std::string& to, std::string_view utf8) {
  constexpr std::string_view hex = "0123456789abcdef";
  to += '"';
  std::size_t plain = 0;  // what needs no escape is appended at once
  for (std::size_t i = 0; i < utf8.size(); ++i) {
    const auto c = static_cast<unsigned char>(utf8[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    to.append(utf8.substr(plain, i - plain));
    plain = i + 1;
    switch (c) {
      case '\n':
        to += "\\n";
        break;
      case '\r':
        to += "\\r";
        break;
      case '\t':
        to += "\\t";
        break;
      case '"':
      case '\\':
        to += '\\';
        to += static_cast<char>(c);
        break;
      default:
        to += "\\u00";
        to += hex[c >> 4];
        to += hex[c & 15];
    }
  }
  to.append(utf8.substr(plain));
  to += '"';
}

std::string base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8 | (k < n ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      out += k <= n ? letters[group >> (18 - 6 * k) & 63] : '=';
    }
  }
  return out;
}

std::optional<std::string> parse_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::size_t padding = 0;
  while (padding < 2 && !text.empty() && text.back() == '=') {
    text.remove_suffix(1);
    ++padding;
  }
  std::string out;
  std::uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    const auto at = letters.find(c);
    if (at == letters.npos) return std::nullopt;
    group = group << 6 | static_cast<std::uint32_t>(at);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out += static_cast<char>(group >> bits & 0xff);
    }
  }
  // The bits that are left over have to be zeros, so that each text has one form.
  if ((group & ((1U << bits) - 1)) != 0) return std::nullopt;
  return out;
}

std::optional<std::string> percent_decoded(std::string_view text, bool plus_is_space) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_space) {
      out += ' ';
    } else if (text[i] != '%') {
      out += text[i];
    } else {
      if (text.size() - i < 3) return std::nullopt;
      const int high = value_of_hex(text[i + 1]);
      const int low = value_of_hex(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      out += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return out;
}

std::optional<std::uint64_t> parse_hex(std::string_view text) noexcept {
  std::uint64_t n = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, n, 16);
  if (text.empty() || error != std::errc() || at != end) return std::nullopt;
  return n;
}

}  // namespace verge::server
