// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tasks_bench.h"

namespace verge::server::bench {

/// Measures servers on a PostgreSQL of its own beside one server on RocksDB, rows that are inserted
/// one by one, and a queue on SKIP LOCKED; all in turns, in one run. Prints tables.
int run_postgres_bench(const tasks_options& options);

}  // namespace verge::server::bench
