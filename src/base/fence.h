// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace verge::detail {

/// A sequentially consistent fence: orders everything before it before everything after it, for all
/// threads that call it. For two threads that each store first and then load what the other stored.
inline void full_fence() noexcept {
#if defined(__SANITIZE_THREAD__) && !defined(VERGE_COHERENCE)
  // The thread sanitizer does not support fences; a read-modify-write of one shared variable gives
  // the same order.
  static std::atomic<int> turnstile{0};
  turnstile.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

/// Every thread of the process executes a full fence between the beginning and the end of this
/// call. So the thread on a rare path can pay for the fences of a frequent one. Returns false if
/// the kernel does not support it.
bool fence_all_threads() noexcept;

}  // namespace verge::detail
