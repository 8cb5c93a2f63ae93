// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "link.h"

/// The tables, and how they came to be. Each version is a script that makes it out of the one
/// before, and is applied in one transaction with the number of the version: a database has a
/// version as a whole or not at all. Scripts are never changed once they are released.
namespace verge::server::postgres {

/// What a database is for, which is decided when its tables are made.
struct layout {
  std::uint32_t version{0};
  std::uint32_t shards{0};
  std::string secret;  ///< that servers know each other by
};

inline constexpr std::uint32_t most_shards = 1024;

/// Makes the tables, or brings them up to date; blocks. `shards` counts only when they are made.
/// Throws store_error, for a database of a newer version as well.
layout prepare(link& to, std::uint32_t shards);

/// What the database is now; version 0 if it has no tables of ours.
layout look_at(link& to);

}  // namespace verge::server::postgres
