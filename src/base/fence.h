#pragma once

#include <atomic>

namespace verge::detail {

/// Everything before it comes before everything after it, in the eyes of all threads that do the
/// same. For two parties of which each first says something and then looks at what the other said.
inline void full_fence() noexcept {
#if defined(__SANITIZE_THREAD__)
  // The thread sanitizer knows no fences; a read-modify-write that all of them share orders as
  // much.
  static std::atomic<int> turnstile{0};
  turnstile.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

/// Every thread of the process passes a full fence between the beginning and the end of this call:
/// who does often what another does once in a lifetime leaves the fence to that one. False if the
/// kernel does not know how.
bool fence_all_threads() noexcept;

}  // namespace verge::detail
