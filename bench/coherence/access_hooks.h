// SPDX-License-Identifier: Apache-2.0
// What the compiler calls for every access with -fsanitize=thread, to be linked in place of the
// thread sanitizer. Each access is made as it is, and a function of the including file is told
// before:
//
//   void on_read(const void* at, std::size_t bytes, const void* by)     plain, and atomic loads
//   void on_write(const void* at, std::size_t bytes, const void* by)    plain
//   void on_change(const void* at, std::size_t bytes, const void* by)   atomic, and fences with
//   null
//
// Atomic operations are sequentially consistent, whatever order was asked for. To be included in
// one file, which itself is compiled without that option.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "plain_hooks.h"

// NOLINTBEGIN: the names and types are the compiler's.

extern "C" {

void __tsan_atomic_thread_fence(int) {
  on_change(nullptr, 0, BY);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

// A compare-and-swap that fails fetches the line to write it, too.
#define ATOMIC(bits, type)                                                                         \
  type __tsan_atomic##bits##_load(const volatile type* p, int) {                                   \
    on_read(const_cast<const type*>(p), sizeof(type), BY);                                         \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                \
  void __tsan_atomic##bits##_store(volatile type* p, type v, int) {                                \
    on_change(const_cast<const type*>(p), sizeof(type), BY);                                       \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                      \
  }                                                                                                \
  type __tsan_atomic##bits##_exchange(volatile type* p, type v, int) {                             \
    on_change(const_cast<const type*>(p), sizeof(type), BY);                                       \
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                            \
  }                                                                                                \
  type __tsan_atomic##bits##_fetch_add(volatile type* p, type v, int) {                            \
    on_change(const_cast<const type*>(p), sizeof(type), BY);                                       \
    return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                \
  type __tsan_atomic##bits##_fetch_sub(volatile type* p, type v, int) {                            \
    on_change(const_cast<const type*>(p), sizeof(type), BY);                                       \
    return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                \
  type __tsan_atomic##bits##_fetch_and(volatile type* p, type v, int) {                            \
    on_change(const_cast<const type*>(p), sizeof(type), BY);                                       \
    return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                \
  type __tsan_atomic##bits##_fetch_or(volatile type* p, type v, int) {                             \
    on_change(const_cast<const type*>(p), sizeof(type), BY);                                       \
    return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST);                                              \
  }                                                                                                \
  type __tsan_atomic##bits##_fetch_xor(volatile type* p, type v, int) {                            \
    on_change(const_cast<const type*>(p), sizeof(type), BY);                                       \
    return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile type* p, type* c, type v, int, int) { \
    on_change(const_cast<const type*>(p), sizeof(type), BY);                                       \
    return __atomic_compare_exchange_n(p, c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);        \
  }                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile type* p, type* c, type v, int, int) {   \
    on_change(const_cast<const type*>(p), sizeof(type), BY);                                       \
    return __atomic_compare_exchange_n(p, c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);        \
  }                                                                                                \
  type __tsan_atomic##bits##_compare_exchange_val(volatile type* p, type c, type v, int, int) {    \
    on_change(const_cast<const type*>(p), sizeof(type), BY);                                       \
    __atomic_compare_exchange_n(p, &c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);              \
    return c;                                                                                      \
  }
ATOMIC(8, std::uint8_t)
ATOMIC(16, std::uint16_t)
ATOMIC(32, std::uint32_t)
ATOMIC(64, std::uint64_t)

}  // extern "C"
// NOLINTEND
