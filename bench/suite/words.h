// SPDX-License-Identifier: Apache-2.0
// The command line's words for systems, workloads and numbers. An unknown one throws
// std::invalid_argument with the list of the known ones.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace verge::bench {

/// "hybrid", "verge/hybrid", "all", "none" ...: names of systems of verge's own.
std::vector<std::string> engines_named(const std::vector<std::string>& words);
/// "libuv", "all", "none" ...: names of the others.
std::vector<std::string> peers_named(const std::vector<std::string>& words);
std::vector<std::string> workloads_named(const std::vector<std::string>& words);

/// "1k", "100k", "2M", "5000".
std::vector<std::size_t> sizes_in(const std::vector<std::string>& words);
std::vector<unsigned> threads_in(const std::vector<std::string>& words);

}  // namespace verge::bench
