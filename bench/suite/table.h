// SPDX-License-Identifier: Apache-2.0
// The figures of a report for a terminal.
#pragma once

#include <optional>
#include <string>

#include "results.h"

namespace verge::bench {

/// The best figure that a system other than verge has at the same work; none if there is no other.
std::optional<result> best_peer(const run_report& report, const result& like);

/// "1k", "100k", "1M"; as digits where that is shorter.
std::string short_number(std::size_t n);

/// A table for each workload and metric: systems down, sizes across.
std::string tables(const run_report& report);

}  // namespace verge::bench
