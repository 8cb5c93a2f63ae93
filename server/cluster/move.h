// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "../postgres/link.h"

/// Copies all tasks from a directory to a database, or back, while no server has either.
///
/// Tasks keep their fields, state and order. In a database an id says which shard has its task, so
/// tasks get new ids there, in the same order; on the way back they keep theirs. Tubes keep their
/// pauses, limits and receivers, and schedules are kept. Answers that are kept for commands that
/// come twice (Idempotency-Key) name old ids, and are not copied. The source stays as it is.
namespace verge::server::cluster {

struct move_report {
  std::uint64_t tasks{0};
  std::uint64_t tubes{0};
  std::uint64_t notes{0};
};

/// Both throw store_error: if the destination has something, if a server has the tasks, or if
/// reading or writing fails. Then the destination is not complete, and must be removed.
move_report move_to_database(const std::string& directory, const postgres::link_options& to,
                             std::uint32_t shards);
move_report move_to_directory(const postgres::link_options& from, const std::string& directory);

}  // namespace verge::server::cluster
