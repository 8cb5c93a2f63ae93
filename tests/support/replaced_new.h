// SPDX-License-Identifier: Apache-2.0
// Replaces operator new of the program that includes it: verge::test::may_allocate(), which is
// declared before, is called for every request and decides whether it is granted.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

// Not inlined, or the compiler sees memory of malloc() that operator delete frees, and warns.
// NOLINTBEGIN(misc-definitions-in-headers): they may not be inline, and a program has one source.
[[gnu::noinline]] void* operator new(std::size_t n, std::align_val_t a) {
  const auto alignment = static_cast<std::size_t>(a);
  const std::size_t size = (n + alignment - 1) / alignment * alignment;
  if (verge::test::may_allocate()) {
    if (void* p = std::aligned_alloc(alignment, size == 0 ? alignment : size)) return p;
  }
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t n) {
  return operator new(n, std::align_val_t(__STDCPP_DEFAULT_NEW_ALIGNMENT__));
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
