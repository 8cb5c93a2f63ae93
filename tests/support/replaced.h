// SPDX-License-Identifier: Apache-2.0
// For headers of tests that replace functions of the C library: how to call the original.
#pragma once

#include <dlfcn.h>

#include <atomic>

namespace verge::test {

/// The function of that name that the test replaces.
template <class F>
F original(F /*replacement*/, const char* name, std::atomic<void*>& found) {
  void* f = found.load(std::memory_order_relaxed);
  if (f == nullptr) {
    f = ::dlsym(RTLD_NEXT, name);
    found.store(f, std::memory_order_relaxed);
  }
  return reinterpret_cast<F>(f);
}

}  // namespace verge::test

#define VERGE_ORIGINAL(f)                          \
  ([] {                                            \
    static constinit std::atomic<void*> found{};   \
    return verge::test::original(&(f), #f, found); \
  }())
