// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "../store/store.h"
#include "pool.h"

/// The tasks of one shard, in PostgreSQL.
///
/// A shard has one owner at a time, the server that has its lease: a row with an epoch, which rises
/// with each owner, and the time that the lease ends, by the database's clock. Each batch is one
/// transaction in one round trip. Its first statement locks the row of the lease, for sharing, if
/// it has the epoch that the store was opened for and has not ended; otherwise the transaction
/// fails. So an owner that was paused, or whose packets were late, changes nothing once another
/// server has taken the shard over: the other one's change of the row waits for batches that hold
/// the lock, and comes before those that do not hold it yet.
///
/// The owner knows its tasks by id: rows are written and removed by primary key. An index is read
/// only where the broker's window ends, never from its beginning while dead rows gather there.
namespace verge::server::postgres {

struct shard_lease {
  std::uint32_t shard{0};
  std::int64_t epoch{0};
};

/// Statements after a lease is lost, and reads of what another server may have changed, throw
/// store_moved or store_error. `links` outlives the store.
std::unique_ptr<store> open_postgres_store(pool& links, shard_lease lease);

}  // namespace verge::server::postgres
