// SPDX-License-Identifier: Apache-2.0
// Counts allocations, to check that there are none. Replaces operator new of the program that
// includes it.
#pragma once

#include <atomic>
#include <cstddef>

namespace verge::test {

inline std::atomic<std::size_t> allocation_count{0};

/// The number of allocations so far.
inline std::size_t allocations() { return allocation_count.load(std::memory_order_relaxed); }

inline bool may_allocate() noexcept {
  allocation_count.fetch_add(1, std::memory_order_relaxed);
  return true;
}

}  // namespace verge::test

#include "replaced_new.h"
