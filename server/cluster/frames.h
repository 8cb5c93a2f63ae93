// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "../broker/command.h"

/// What servers say to each other: commands and replies as bytes.
///
/// A frame is its length, 4 bytes, its kind, the number of a lane, and what the kind says. A lane
/// is one client's way to one shard as one server has it, from one epoch on (lane.h). All servers
/// of a cluster have the same version of these frames: a hello says which, and another one is
/// refused.
namespace verge::server::cluster {

inline constexpr std::uint32_t frame_version = 1;
inline constexpr std::size_t longest_frame = 256U << 20;

enum class frame_kind : std::uint8_t {
  hello,    ///< the version and the secret of the database; the first frame
  open,     ///< a lane, and the shard that it goes to
  command,  ///< for a lane
  reply,    ///< of a lane
  close,    ///< the client of the lane leaves
  look,     ///< shards were given up: look at the leases now
};

struct frame {
  frame_kind kind{frame_kind::look};
  std::uint64_t lane{0};
  std::uint64_t shard{0};  ///< open
  std::string text;        ///< hello
  command what;            ///< command
  reply said;              ///< reply
};

void append(std::string& out, const frame& f);
/// Takes the first frame off the front, if all of it is there. Throws std::runtime_error if it
/// cannot be one.
bool take(std::string_view& in, frame& f);

}  // namespace verge::server::cluster
