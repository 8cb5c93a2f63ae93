// SPDX-License-Identifier: Apache-2.0
// Makes a request for a resource fail: the nth of its kind from now on, and some after it.
// Replaces, in the one source file of a program that includes it, the functions through which
// requests are made: malloc and the like, mmap, pthread_create, and those that create descriptors.
//
// With the address sanitizer, which has its own malloc, operator new is replaced instead.
#pragma once

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "replaced.h"

namespace verge::test {

enum class resource : std::uint8_t { none, memory, mapping, thread, descriptor };

/// What is to fail: requests [first, first + in_a_row) of one kind, counted from 1.
struct failure_plan {
  std::atomic<resource> kind{resource::none};
  std::atomic<long> first{0};
  std::atomic<long> in_a_row{0};
  std::atomic<long> seen{0};
};
inline constinit failure_plan failures;

inline void fail(resource kind, long first, long in_a_row) {
  failures.first = first;
  failures.in_a_row = in_a_row;
  failures.seen = 0;
  failures.kind = kind;
}
inline void fail_no_more() { failures.kind = resource::none; }
/// Whether the first request that was to fail has been made.
inline bool has_failed() { return failures.seen >= failures.first; }

inline bool is_to_fail(resource kind, int error) {
  if (failures.kind.load(std::memory_order_relaxed) != kind) return false;
  const long n = failures.seen.fetch_add(1, std::memory_order_relaxed) + 1;
  if (n < failures.first || n >= failures.first + failures.in_a_row) return false;
  errno = error;
  return true;
}

}  // namespace verge::test

// NOLINTBEGIN: replacements have the names and types of what they replace.
extern "C" {

void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  if (verge::test::is_to_fail(verge::test::resource::mapping, ENOMEM)) return MAP_FAILED;
  return VERGE_ORIGINAL(mmap)(at, bytes, protection, flags, fd, offset);
}
int pthread_create(pthread_t* t, const pthread_attr_t* a, void* (*f)(void*), void* x) noexcept {
  if (verge::test::is_to_fail(verge::test::resource::thread, EAGAIN)) return EAGAIN;
  return VERGE_ORIGINAL(pthread_create)(t, a, f, x);
}
int epoll_create1(int flags) noexcept {
  if (verge::test::is_to_fail(verge::test::resource::descriptor, EMFILE)) return -1;
  return VERGE_ORIGINAL(epoll_create1)(flags);
}
int eventfd(unsigned count, int flags) noexcept {
  if (verge::test::is_to_fail(verge::test::resource::descriptor, EMFILE)) return -1;
  return VERGE_ORIGINAL(eventfd)(count, flags);
}
int timerfd_create(clockid_t clock, int flags) noexcept {
  if (verge::test::is_to_fail(verge::test::resource::descriptor, EMFILE)) return -1;
  return VERGE_ORIGINAL(timerfd_create)(clock, flags);
}
int socket(int domain, int type, int protocol) noexcept {
  if (verge::test::is_to_fail(verge::test::resource::descriptor, EMFILE)) return -1;
  return VERGE_ORIGINAL(socket)(domain, type, protocol);
}
int pipe2(int* ends, int flags) noexcept {
  if (verge::test::is_to_fail(verge::test::resource::descriptor, EMFILE)) return -1;
  return VERGE_ORIGINAL(pipe2)(ends, flags);
}
int accept4(int fd, sockaddr* from, socklen_t* length, int flags) {
  if (verge::test::is_to_fail(verge::test::resource::descriptor, EMFILE)) return -1;
  return VERGE_ORIGINAL(accept4)(fd, from, length, flags);
}

}  // extern "C"

#if defined(__SANITIZE_ADDRESS__)

namespace verge::test {
inline bool may_allocate() noexcept { return !is_to_fail(resource::memory, ENOMEM); }
}  // namespace verge::test

#include "replaced_new.h"

#else

extern "C" {

void* __libc_malloc(size_t bytes) noexcept;
void* __libc_calloc(size_t n, size_t bytes) noexcept;
void* __libc_realloc(void* block, size_t bytes) noexcept;
void* __libc_memalign(size_t alignment, size_t bytes) noexcept;

void* malloc(size_t bytes) noexcept {
  if (verge::test::is_to_fail(verge::test::resource::memory, ENOMEM)) return nullptr;
  return __libc_malloc(bytes);
}
void* calloc(size_t n, size_t bytes) noexcept {
  if (verge::test::is_to_fail(verge::test::resource::memory, ENOMEM)) return nullptr;
  return __libc_calloc(n, bytes);
}
void* realloc(void* block, size_t bytes) noexcept {
  if (verge::test::is_to_fail(verge::test::resource::memory, ENOMEM)) return nullptr;
  return __libc_realloc(block, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  if (verge::test::is_to_fail(verge::test::resource::memory, ENOMEM)) return nullptr;
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** block, size_t alignment, size_t bytes) noexcept {
  if (verge::test::is_to_fail(verge::test::resource::memory, ENOMEM)) return ENOMEM;
  *block = __libc_memalign(alignment, bytes);
  return *block == nullptr ? ENOMEM : 0;
}

}  // extern "C"

#endif
// NOLINTEND
