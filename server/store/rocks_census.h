// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rocksdb/db.h>

#include <memory>
#include <vector>

#include "census.h"

namespace verge::server {

/// A census of a snapshot of the database, by the keys of the index alone.
std::shared_ptr<census> take_rocks_census(rocksdb::DB& db, std::vector<tube_number> tubes,
                                          const census_range& range);

}  // namespace verge::server
