// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace verge::server {

/// XXH3 of 64 bits without a seed, as RocksDB's tables have it: for texts of 4 bytes or more; 0 for
/// shorter ones, which no block of a table is. One number at a time, as little is hashed with it.
std::uint64_t xxh3(std::string_view bytes) noexcept;

}  // namespace verge::server
