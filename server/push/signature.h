// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Signatures after Standard Webhooks 1.0, with symmetric keys.
///
///   webhook-id: task-17
///   webhook-timestamp: 1700000000                  seconds, of this attempt
///   webhook-signature: v1,K5oZfzN95Z9UVu...   base64 of HMAC-SHA256(secret, id.timestamp.body)
///
/// The id is the same for all attempts of a task: a receiver that has seen it ignores the others.
namespace verge::server::push {

/// One signature for each secret, separated by spaces.
std::string sign(const std::vector<std::string>& secrets, std::string_view id,
                 std::int64_t timestamp, std::string_view body);

/// A secret's text is "whsec_" and base64 of 24 to 64 bytes. Nothing if it is none.
std::optional<std::string> parse_secret(std::string_view text);
std::string secret_text(std::string_view secret);
/// 32 bytes that were never there before.
std::string new_secret();

}  // namespace verge::server::push
