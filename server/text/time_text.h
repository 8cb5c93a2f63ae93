// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "../model/task.h"

/// Times as text: lengths like "30s", and points in time after RFC 3339.
namespace verge::server {

/// "90s", "1500ms", "30m", "2h", "1d", in nanoseconds. A bare number is in units of `bare`. Nothing
/// if it is none of these, or longer than the longest delay.
std::optional<nanoseconds> parse_duration(std::string_view text, nanoseconds bare);

/// "2026-11-16T12:00:00Z", "2026-11-16t13:00:00.25+01:00". Nothing if it is not such a time, or not
/// between 1970 and 2262. Digits beyond nanoseconds are rounded up: nothing is early.
std::optional<wall_time> parse_rfc3339(std::string_view text);
/// In UTC, with as many digits of the second as it needs: none, three, six or nine.
std::string format_rfc3339(wall_time t);

}  // namespace verge::server
