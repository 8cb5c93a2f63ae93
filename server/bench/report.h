// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "load.h"

namespace verge::server::bench {

double median(std::vector<double> v);

/// The rounds of each that is measured.
using figures_by_name = std::map<std::string, std::vector<load_figures>>;

/// Prints medians with the lowest and the highest, in this order of names, and adds them to `into`.
void report(nlohmann::json& into, const std::string& title, const figures_by_name& all,
            const std::vector<std::string>& order);

/// Prints how long the disk under `directory` takes to sync, and adds it to `into`.
void report_disk(nlohmann::json& into, const std::string& directory);

/// Writes what was measured to a file, if one was named.
void write_figures(const nlohmann::json& figures, const std::string& file);

}  // namespace verge::server::bench
