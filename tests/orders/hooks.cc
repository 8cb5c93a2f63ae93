// SPDX-License-Identifier: Apache-2.0

// What the compiler calls for every access of code that is compiled as for the thread sanitizer.
// During a schedule the model answers; otherwise the access is made as it is.

#include <orders/traced_memory.h>
#include <orders/tracing.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace {

using verge::orders::traced;
using verge::orders::traced_memory;

traced_memory& memory() { return *traced_memory::now(); }

void on_read(const void* at, std::size_t n, const void* by) {
  traced([&] { memory().read(at, n, by); });
}
void on_write(const void* at, std::size_t n, const void* by) {
  traced([&] { memory().write(at, n, by); });
}

template <class T, class F>
T on_change(volatile T* at, int order, const void* by, F&& f) {
  std::uint64_t before = 0;
  const bool done = traced([&] {
    before = memory().change(
        at, sizeof(T), [&](std::uint64_t was) { return f(static_cast<T>(was)); }, order, by);
  });
  if (done) return static_cast<T>(before);
  T was = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (
      !__atomic_compare_exchange_n(at, &was, f(was), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return was;
}

template <class T>
int on_compare(volatile T* at, T* expected, T desired, int success, int failure, const void* by) {
  bool equal = false;
  const bool done = traced([&] {
    std::uint64_t seen = *expected;
    equal = memory().compare_exchange(at, sizeof(T), seen, desired, success, failure, by);
    *expected = static_cast<T>(seen);
  });
  if (done) return equal ? 1 : 0;
  return __atomic_compare_exchange_n(at, expected, desired, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST)
             ? 1
             : 0;
}

}  // namespace

#include "../../bench/coherence/plain_hooks.h"

// NOLINTBEGIN: the names and types are the compiler's.

extern "C" {

void __tsan_atomic_thread_fence(int order) {
  const void* const by = BY;
  if (!traced([&] { memory().fence(order, by); })) __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#define ATOMIC(bits, type)                                                                    \
  type __tsan_atomic##bits##_load(const volatile type* p, int order) {                        \
    const void* const by = BY;                                                                \
    std::uint64_t v = 0;                                                                      \
    if (traced([&] { v = memory().load(p, sizeof(type), order, by); })) return (type)v;       \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                              \
  }                                                                                           \
  void __tsan_atomic##bits##_store(volatile type* p, type v, int order) {                     \
    const void* const by = BY;                                                                \
    if (traced([&] { memory().store(p, sizeof(type), v, order, by); })) return;               \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                           \
  type __tsan_atomic##bits##_exchange(volatile type* p, type v, int order) {                  \
    return on_change(p, order, BY, [&](type) { return v; });                                  \
  }                                                                                           \
  type __tsan_atomic##bits##_fetch_add(volatile type* p, type v, int order) {                 \
    return on_change(p, order, BY, [&](type was) { return (type)(was + v); });                \
  }                                                                                           \
  type __tsan_atomic##bits##_fetch_sub(volatile type* p, type v, int order) {                 \
    return on_change(p, order, BY, [&](type was) { return (type)(was - v); });                \
  }                                                                                           \
  type __tsan_atomic##bits##_fetch_and(volatile type* p, type v, int order) {                 \
    return on_change(p, order, BY, [&](type was) { return (type)(was & v); });                \
  }                                                                                           \
  type __tsan_atomic##bits##_fetch_or(volatile type* p, type v, int order) {                  \
    return on_change(p, order, BY, [&](type was) { return (type)(was | v); });                \
  }                                                                                           \
  type __tsan_atomic##bits##_fetch_xor(volatile type* p, type v, int order) {                 \
    return on_change(p, order, BY, [&](type was) { return (type)(was ^ v); });                \
  }                                                                                           \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile type* p, type* c, type v, int a, \
                                                    int b) {                                  \
    return on_compare(p, c, v, a, b, BY);                                                     \
  }                                                                                           \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile type* p, type* c, type v, int a,   \
                                                  int b) {                                    \
    return on_compare(p, c, v, a, b, BY);                                                     \
  }                                                                                           \
  type __tsan_atomic##bits##_compare_exchange_val(volatile type* p, type c, type v, int a,    \
                                                  int b) {                                    \
    on_compare(p, &c, v, a, b, BY);                                                           \
    return c;                                                                                 \
  }
ATOMIC(8, unsigned char)
ATOMIC(16, unsigned short)
ATOMIC(32, unsigned int)
ATOMIC(64, unsigned long)

}  // extern "C"
// NOLINTEND
