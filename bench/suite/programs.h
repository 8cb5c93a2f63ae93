// SPDX-License-Identifier: Apache-2.0
// The peers that are programs in other languages: bench/peers/go, netty and tokio. Each is built on
// first use, without the network, from Debian's packages.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace verge::bench {

/// Each builds the program and returns the command that starts it. Throws std::runtime_error,
/// naming what is missing.
std::vector<std::string> build_go();
std::vector<std::string> build_go_program(const std::filesystem::path& source,
                                          const std::filesystem::path& binary);
std::vector<std::string> build_netty();
std::vector<std::string> build_tokio();

}  // namespace verge::bench
