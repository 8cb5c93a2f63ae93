// SPDX-License-Identifier: Apache-2.0
// The report as a page: one file, with everything in it.
#pragma once

#include <string>

#include "results.h"

namespace verge::bench {

/// Plots drawn by the page itself from the report's JSON, which it carries; nothing is loaded from
/// anywhere.
std::string to_html(const run_report& report);

}  // namespace verge::bench
