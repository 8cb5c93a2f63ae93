// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rocksdb/env.h>

#include <memory>
#include <vector>

#include "log_tail.h"

/// Environments for RocksDB; each is to be kept as long as the database.
namespace verge::server {

/// One that syncs a log before the next one is begun. Then at most the last one can have lost
/// something with the power, although batches are not synced.
std::unique_ptr<rocksdb::Env> make_env_that_syncs_old_logs();

/// One in which these logs end where they have to, so that a directory can be read that a crash has
/// left, without a change to it.
std::unique_ptr<rocksdb::Env> make_env_with_cut_logs(const std::vector<log_cut>& cuts);

}  // namespace verge::server
