// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// What the recorder (disk_recorder.cc, inside the server) writes down and the tests read: one
/// record after the other, a header and its payload, in the order in which things happened.
///
/// The number of a record is its place in the log. A counter in shared memory is always the number
/// of records so far, so that a test can tell what happened after something that it did itself.
namespace verge::crash {

enum class disk_op : std::uint32_t {
  open,        ///< fd, flags in `offset`; the path
  close,       ///< fd
  write,       ///< fd, where in `offset`; the bytes
  truncate,    ///< fd, the size in `offset`
  sync_begin,  ///< fd, a number in `offset`
  sync_end,    ///< the same number: what was written before its beginning is on the disk now
  rename,      ///< both paths, with a zero byte between them
  unlink,      ///< the path
  link,        ///< both paths
  mkdir,       ///< the path
  accept,      ///< fd; the client's port in `offset`
  send,        ///< fd; how many bytes have left in `offset`; the first of them, for people
};

struct disk_record {
  static constexpr std::uint32_t right_mark = 0x6b736964;
  std::uint32_t mark{right_mark};
  disk_op what{};
  std::int32_t fd{-1};
  std::uint32_t payload{0};  ///< bytes that follow
  std::uint64_t offset{0};
};

}  // namespace verge::crash
