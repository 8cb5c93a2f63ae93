// SPDX-License-Identifier: Apache-2.0
// Rules of RFC 9110, 9112 and 3986 that Boost.Beast does not check: pure functions of text.
#pragma once

#include <optional>
#include <string_view>

namespace http {

/// Returns whether two names are equal except for the case of ASCII letters.
bool same_name(std::string_view a, std::string_view b) noexcept;

/// Capital letters, "-" and "_". Other tokens would be allowed by the grammar; no method has them.
bool is_method(std::string_view text) noexcept;
bool is_method_letter(char c) noexcept;

/// The value of Host, or the authority of a target: a name or an address, and perhaps a port. Not
/// empty, and without a user.
bool is_authority(std::string_view text) noexcept;

/// Decimal digits only.
bool is_length(std::string_view text) noexcept;

/// The line before a chunk, without its CRLF: hexadecimal digits, then nothing or an extension
/// without control characters. What an extension consists of is left to Beast.
bool is_chunk_line(std::string_view line) noexcept;
/// Whether such a line is that of the last chunk.
bool is_last_chunk(std::string_view line) noexcept;

/// The parts of a request's target.
struct target_parts {
  std::string_view authority;  ///< of absolute form, else empty
  std::string_view path;
  std::string_view query;
};
/// Accepts a target in origin form ("/path?query"), in absolute form ("http://host/path?query"), or
/// "*" for OPTIONS. Rejects everything else: invalid escapes and those of NUL; fragments; users.
std::optional<target_parts> split_target(std::string_view method, std::string_view target) noexcept;

}  // namespace http
