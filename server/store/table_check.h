// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rocksdb/file_system.h>

#include <memory>

/// What RocksDB does not check when it opens a file with a table.
///
/// Each block of a table has a checksum, and RocksDB compares it before it uses the block. Two
/// parts are not protected so:
///  - The properties, which say how the index is written. RocksDB 7.8 reads the end of their block
///    before it compares the checksum: one bit there, and an assertion ends the process. If only
///    the checksum is wrong it notes that in its LOG, and goes on as if there were no properties.
///  - The footer, the last 53 bytes, has no checksum. It says which checksum blocks have, and in
///    which version they are written. With one bit flipped they are read by other rules.
///
/// A footer has only a few values that this program writes; all others are refused. The metaindex
/// that it leads to, and all blocks that are named there, are compared with their checksums here.
/// The index and the data are RocksDB's to check, which it does with every block that it reads.
///
/// This is done whenever RocksDB opens a table: at the start for up to max_open_files tables, and
/// for each that is written. It costs a read of 4 KiB, and one of the first level of the filter,
/// both of what RocksDB reads next anyway.
namespace verge::server {

/// The size of the footer.
inline constexpr std::size_t table_footer_size = 53;

/// The default file system, in which a damaged table cannot be opened.
std::shared_ptr<rocksdb::FileSystem> file_system_with_checked_tables();

}  // namespace verge::server
