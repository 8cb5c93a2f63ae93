// SPDX-License-Identifier: Apache-2.0
// What the compiler calls with -fsanitize=thread for accesses that are not atomic, and for what
// needs no model, to be linked in place of the thread sanitizer. The including file has defined
//
//   void on_read(const void* at, std::size_t bytes, const void* by)
//   void on_write(const void* at, std::size_t bytes, const void* by)
//
// which are told before the access is made, with the address of the code that makes it. To be
// included in one file, which itself is compiled without that option.
#pragma once

#include <cstddef>

// NOLINTBEGIN: the names and types are the compiler's.
#define BY __builtin_return_address(0)

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void** p, void*) { on_write(p, 8, BY); }
void __tsan_vptr_read(void** p) { on_read(p, 8, BY); }
void __tsan_read_range(void* p, std::size_t n) { on_read(p, n, BY); }
void __tsan_write_range(void* p, std::size_t n) { on_write(p, n, BY); }
void __tsan_atomic_signal_fence(int) {}

#define PLAIN(n)                                                  \
  void __tsan_read##n(void* p) { on_read(p, n, BY); }             \
  void __tsan_write##n(void* p) { on_write(p, n, BY); }           \
  void __tsan_unaligned_read##n(void* p) { on_read(p, n, BY); }   \
  void __tsan_unaligned_write##n(void* p) { on_write(p, n, BY); } \
  void __tsan_volatile_read##n(void* p) { on_read(p, n, BY); }    \
  void __tsan_volatile_write##n(void* p) { on_write(p, n, BY); }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

}  // extern "C"
// NOLINTEND
