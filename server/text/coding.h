#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Small codings: UTF-8, base64, percent, hexadecimal.
namespace verge::server {

bool is_utf8(std::string_view text) noexcept;
std::string base64(std::string_view bytes);
/// Nothing if it is not base64 with its padding.
std::optional<std::string> parse_base64(std::string_view text);
/// "%2F" becomes "/"; nothing if an escape is not right.
std::optional<std::string> percent_decoded(std::string_view text, bool plus_is_space = false);
std::optional<std::uint64_t> parse_hex(std::string_view text) noexcept;

}  // namespace verge::server
