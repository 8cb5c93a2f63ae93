// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rocksdb/env.h>

#include <atomic>
#include <cstdint>
#include <memory>

/// RocksDB's log on a file that is larger than what is in it, and reads as zeros beyond.
///
/// A sync of a file that has grown also has to write where its blocks are and how long it is: on
/// ext4 that takes twice as long as a sync of bytes in blocks that are there. So zeros are written
/// ahead of the log, a quarter of a MiB at a time, and what is logged replaces them. A log that is
/// closed is cut to its length; one that a crash has left is cut by mend_log_tails().
///
/// To write zeros is an attempt: where it fails, for lack of room say, the log grows as before.
namespace verge::server {

/// An environment for RocksDB whose logs are written so; to be kept as long as the database. Adds
/// the zeros to `zeros_written`.
std::unique_ptr<rocksdb::Env> make_env_with_zeroed_logs(
    std::shared_ptr<std::atomic<std::uint64_t>> zeros_written);

}  // namespace verge::server
