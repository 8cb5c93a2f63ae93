// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <verge/endpoint.h>

/// Messages of DNS (RFC 1035), as much of them as a client needs that asks for the addresses of a
/// name: a question to bytes, and bytes to addresses. Pure: no socket, no clock.
///
/// Bytes come from a network that anyone may write to. What is not exactly the reply to the
/// question that was asked is no reply.
namespace verge::server::push {

enum class dns_type : std::uint16_t { a = 1, aaaa = 28 };

struct dns_question {
  std::uint16_t id{0};
  std::string name;  ///< without the point at its end
  dns_type type{dns_type::a};
};

/// Whether the name can be asked for: labels of 1 to 63 bytes, at most 253 together.
bool is_dns_name(std::string_view name) noexcept;

/// The name has to be one that can be asked for.
std::string dns_query(const dns_question& q);

struct dns_reply {
  std::uint8_t code{0};  ///< 0: good, 2: the server has failed, 3: there is no such name
  bool truncated{false};
  std::vector<endpoint> found;  ///< without a port
};

inline constexpr std::uint8_t dns_good = 0;
inline constexpr std::uint8_t dns_no_such_name = 3;

/// Nothing if the message is malformed, or not the reply to this question. Other names that the
/// reply says stand for the one that was asked for are followed, within the reply.
std::optional<dns_reply> parse_dns_reply(std::string_view message, const dns_question& q);

}  // namespace verge::server::push
