// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace verge::server::bench {

/// Puts so many tasks a second that are due after 1 s, at the first port, and reserves them at all
/// of them: prints how late each is received, under that name. At the median, at p99, and at most,
/// in milliseconds.
nlohmann::json measure_lateness(const std::vector<std::uint16_t>& ports, const std::string& name,
                                int per_second, int seconds);

}  // namespace verge::server::bench
