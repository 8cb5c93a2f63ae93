// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "../store/store.h"
#include "joint_commits.h"

/// The tasks of one shard, in PostgreSQL.
///
/// A shard has one owner at a time, the server that has its lease: a row with an epoch, which rises
/// with each owner, and the time that the lease ends, by the database's clock. Every write checks
/// both (transaction.h). The owner knows its tasks by id; an index is read only where the broker's
/// window ends, never from its beginning while dead rows gather there.
namespace verge::server::postgres {

/// Statements after a lease is lost, and reads of what another server may have changed, throw
/// store_moved or store_error. `commits` outlives the store.
std::unique_ptr<store> open_postgres_store(joint_commits& commits, shard_lease lease);

}  // namespace verge::server::postgres
