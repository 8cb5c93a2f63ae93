// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace verge::server::cluster {

/// The shard of a tube. All of a tube is in one shard, so that its order, its keys, its pause and
/// its limit are one broker's. The function is part of the format of the database.
inline std::uint32_t shard_of_tube(std::string_view tube, std::uint32_t shards) noexcept {
  std::uint64_t h = 0xcbf29ce484222325U;
  for (const char c : tube) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return static_cast<std::uint32_t>((h ^ h >> 32) % shards);
}

}  // namespace verge::server::cluster
