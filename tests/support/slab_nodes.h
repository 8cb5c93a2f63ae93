// SPDX-License-Identifier: Apache-2.0
// Shared by tests of the slab: a node, and access to a pool's internals.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <memory/slab.h>

namespace verge::detail {

struct slab_pool_access {
  static constexpr std::uint32_t last_version = slab_pool::last_version;
  static constexpr std::size_t max_chunks = slab_pool::max_chunks;
  static constexpr std::size_t cache_size = slab_pool::cache_size;
  static constexpr std::size_t small = slab_pool::small;
  static constexpr std::size_t large = slab_pool::large;
  static void set_version(void* node, std::uint32_t version) {
    slab_pool::header_of(node).version.store(version);
  }
  static std::size_t per_chunk(const slab_pool& pool) { return pool.per_chunk_; }
};

}  // namespace verge::detail

namespace verge::test {

using detail::slab_pool_access;

/// Like a timer's node: with its version a cache line.
struct node {
  std::atomic<std::uint64_t> word{7};
  std::uint64_t rest[6] = {};
};
static_assert(sizeof(node) == 56);

inline std::uintptr_t address(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

}  // namespace verge::test
