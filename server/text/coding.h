// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Small codings: UTF-8, strings of JSON, base64, percent, hexadecimal.
namespace verge::server {

bool is_utf8(std::string_view text) noexcept;
/// Appends the text as a string of JSON, in quotes. It has to be UTF-8.
void append_json_text(std::string& to, std::string_view utf8);
std::string base64(std::string_view bytes);
/// Nothing if it is not base64 with its padding.
std::optional<std::string> parse_base64(std::string_view text);
/// "%2F" becomes "/"; nothing if an escape is not right.
std::optional<std::string> percent_decoded(std::string_view text, bool plus_is_space = false);
std::optional<std::uint64_t> parse_hex(std::string_view text) noexcept;

}  // namespace verge::server
