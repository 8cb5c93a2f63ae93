// SPDX-License-Identifier: Apache-2.0
// Counts allocations, to check that there are none. Replaces operator new of the program that
// includes it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace verge::test {

inline std::atomic<std::size_t> allocation_count{0};

/// The number of allocations so far.
inline std::size_t allocations() { return allocation_count.load(std::memory_order_relaxed); }

inline void* counted_new(std::size_t size, std::size_t alignment) {
  allocation_count.fetch_add(1, std::memory_order_relaxed);
  size = (size + alignment - 1) / alignment * alignment;
  if (void* p = std::aligned_alloc(alignment, size == 0 ? alignment : size)) return p;
  throw std::bad_alloc();
}

}  // namespace verge::test

// Not inlined, or the compiler sees memory of malloc() that operator delete frees, and warns.
// NOLINTBEGIN(misc-definitions-in-headers): they may not be inline, and a program has one source.
[[gnu::noinline]] void* operator new(std::size_t n) {
  return verge::test::counted_new(n, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
[[gnu::noinline]] void* operator new(std::size_t n, std::align_val_t a) {
  return verge::test::counted_new(n, static_cast<std::size_t>(a));
}
[[gnu::noinline]] void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  try {
    return operator new(n);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}
// NOLINTEND(misc-definitions-in-headers)
