#pragma once

#include <string>

/// The ends of RocksDB's logs after a loss of power.
///
/// A log is synced batch by batch. So at most its last batch can be torn (of the manifest, the last
/// few): some of its sectors have reached the disk and others, perhaps earlier ones, have not and read
/// as zeros. Nobody was told of that batch, and it can be dropped. RocksDB drops a batch whose end is missing, but refuses to open
/// the log if it is a part in the middle; and if a bit of a length is flipped, so that a record seems
/// to go on beyond the end of the log, it takes that for a missing end and silently drops all that
/// follows in that block of 32 KiB. Both are decided here, before RocksDB opens the directory:
///
///  - nothing but a part of the last batch is missing, or reads as zeros: torn. It is cut off.
///  - what cannot be read is followed by another batch, or has no zeros for its missing part:
///    damaged. Acknowledged tasks may be lost, so it is refused.
///
/// A bit that is flipped in the last batch of a log is taken for a tear if that batch happens to have
/// a whole sector of zeros.
namespace verge::server {

/// Looks at all logs of a directory that no process has open, and at its manifest. Throws
/// store_error if one is damaged, or if the file is missing that says which of them count.
void mend_log_tails(const std::string& directory);

}  // namespace verge::server
