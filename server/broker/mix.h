// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verge::server {

/// Every bit of the result depends on every bit of n. It can be undone: for what must not be
/// guessed there is keyed_hash.h.
constexpr std::uint64_t mix(std::uint64_t n) noexcept {
  n ^= n >> 30;
  n *= 0xbf58476d1ce4e5b9U;
  n ^= n >> 27;
  n *= 0x94d049bb133111ebU;
  return n ^ (n >> 31);
}

}  // namespace verge::server
