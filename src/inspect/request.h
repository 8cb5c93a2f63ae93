// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

/// Requests to the inspector: GET, with a few headers, and no body. Strict: what is not as RFC 9112
/// has it is refused, and nothing is guessed. http1/ has a parser for servers that need more; the
/// library has no dependency, and that one needs Boost.
namespace verge::detail {

struct inspect_request {
  std::string path;           ///< "/stats.json"
  std::string query;          ///< what is behind the question mark
  std::string host;           ///< without the port
  std::string authorization;  ///< the token of "Bearer"
};

struct parsed_request {
  int status{200};  ///< 200, or with which status the request is refused
  inspect_request request;
};

/// A request that is longer than this is refused.
inline constexpr std::size_t longest_request = 8192;

/// Reads all up to the empty line, which `head` ends with.
parsed_request parse_inspect_request(std::string_view head);

/// The value of a parameter of a query; none if it is not there, or has an escape, which nothing
/// that the inspector takes needs.
std::optional<std::string_view> query_value(std::string_view query, std::string_view name);

/// Whether it names the loopback interface: what a browser has in its address line that was sent to
/// the loopback interface by a name that another server resolves so is none.
bool is_loopback_name(std::string_view host);

/// Whether they are equal, in a time that does not depend on where they differ.
bool same_token(std::string_view a, std::string_view b) noexcept;

}  // namespace verge::detail
