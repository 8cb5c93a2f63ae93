// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// The ends of RocksDB's logs after a crash or a loss of power.
///
/// A log ends in zeros that were written ahead of it (zeroed_log.h), unless it was closed. They are
/// cut off.
///
/// A log is synced batch by batch, and a new one is begun only then. So at most the last batch of
/// the last log can be torn (of the manifest, the last few): some of its sectors have reached the
/// disk, and others, perhaps earlier ones, have not and read as zeros. No client has been told of
/// that batch, and it can be dropped.
///
/// A server that does not sync its batches (durability::written) still syncs a log before it begins
/// the next one. So of the last log any number of batches can be torn, and whole ones may follow:
/// it is cut off at the first that is torn, and what is left is what there was at some moment
/// before. Clients may have been told of what is cut off. A file in the directory says that this is
/// so.
///
/// RocksDB alone does not do that. It drops a batch whose end is missing, in older logs too, but
/// refuses to open a log if a part in the middle of the last batch is missing. And if a flipped bit
/// makes a record seem to go on beyond the end of the log, it takes that for a missing end, and
/// silently drops all that follows in that block of 32 KiB. So both are decided here, before
/// RocksDB opens the directory:
///
///  - A part of the last batch is missing or reads as zeros: torn. The batch is cut off. A batch
///    that is whole does not end in zeros: the store sees to that.
///  - What cannot be read is followed by another batch or another log, or nothing of it reads as
///    zeros: damaged. Acknowledged tasks may be lost, so opening is refused.
///
/// The two look alike in one case: a flipped bit in the last batch of a log, if that batch has a
/// whole sector of zeros. It is taken for a tear.
namespace verge::server {

/// A log that has to end earlier than it does.
struct log_cut {
  std::string path;
  std::uint64_t size{0};     ///< up to here it is right
  std::uint64_t dropped{0};  ///< bytes behind that, without zeros that were written ahead
};

/// Looks at all logs of a directory that no process has open, and at its manifest. Changes nothing.
/// Throws store_error if one is damaged or cannot be read, or if the file is missing that says
/// which of them count. `unsynced`: batches of the last log were not synced one by one.
std::vector<log_cut> examine_log_tails(const std::string& directory, bool unsynced);

/// Cuts them, and syncs that.
void cut_logs(const std::vector<log_cut>& cuts);

}  // namespace verge::server
