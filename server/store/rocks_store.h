// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store.h"

/// Tasks on disk, in RocksDB.
///
/// One family with a letter in front of each key (records.h): a family that is seldom written keeps
/// every log since its last flush, and with one family there is none.
///
/// Options that matter, each because of something that was measured:
///  - kTolerateCorruptedTailRecords: a torn last record is dropped, as it was never acknowledged; a
///    damaged one in the middle refuses to open. The default drops all that follows, silently.
///  - Keys that are written once are removed with SingleDelete: put and remove annihilate each
///    other at the next flush, and leave no tombstone.
///  - The broker always scans from where it was, and after a restart from a stored mark
///    (low_water.h), never from the first key: nothing walks over tombstones again and again.
///  - Filters in parts, which fit into the cache.
///  - max_total_wal_size, so that the logs that the next start has to read are not many.
namespace verge::server {

/// What a reply means for the disk.
enum class durability : std::uint8_t {
  synced,  ///< it has been told to the disk, and survives loss of power: the default
  /// The kernel has it: it survives kill -9. After a loss of power the directory can be opened, and
  /// has all that there was at some moment before, and nothing later.
  written,
};

struct rocks_options {
  std::string directory;
  durability mode{durability::synced};
  std::uint64_t memtable_bytes{32U << 20};
  std::uint64_t cache_bytes{32U << 20};
  bool must_exist{false};  ///< for tools: do not make a new one
  /// Told what an operator should know, in a sentence; it may be empty.
  std::function<void(const std::string&)> notice{};
};

/// Opens the directory, or makes it. Throws store_error with what is wrong and what to do.
std::unique_ptr<store> open_rocks_store(const rocks_options& options);

/// Reads everything and returns what is wrong: nothing if all invariants hold. Nothing is changed:
/// not the format, nor the logs that a crash has left. Every task has one place, every index entry
/// points to a task that points back, every key names one task that has it, every count is right,
/// every body can be read.
struct check_report {
  std::uint64_t tasks{0};
  std::uint64_t bodies_bytes{0};
  std::vector<std::string> faults;  ///< the first hundred
  std::uint64_t fault_count{0};
};
check_report check_rocks_store(const std::string& directory);

}  // namespace verge::server
