// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// The URLs of receivers: http and https, with what a request to them needs and nothing more.
namespace verge::server::push {

struct url {
  bool secure{false};
  std::string host;  ///< a name in lower case, or an address without brackets
  std::uint16_t port{80};
  std::string target{"/"};  ///< path and query

  /// As in the header Host: without the port that is the scheme's own.
  std::string authority() const;
  /// Host and port: what limits are counted by.
  std::string receiver() const;
  std::string text() const;
  friend bool operator==(const url&, const url&) = default;
};

inline constexpr std::size_t longest_url = 2'000;

/// Nothing if it is not an absolute URL of http or https in ASCII, or has a user or a fragment.
std::optional<url> parse_url(std::string_view text);
/// Where a redirection leads: an absolute URL, or one that begins with "//" or "/". Nothing for
/// others, and for one from https to http.
std::optional<url> redirected(const url& from, std::string_view location);

}  // namespace verge::server::push
