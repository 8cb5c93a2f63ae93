// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include <verge/detail/timer_node.h>

namespace verge::detail {

/// Nodes whose last reference was a queue's, dropped with its lock held, and whose payload has to
/// be destroyed: that is user code, and waits until no lock is held. For any thread.
class dead_nodes {
 public:
  void add(timer_node& t) noexcept {
    t.next = first_.load(std::memory_order_relaxed);
    while (!first_.compare_exchange_weak(t.next, &t, std::memory_order_release,
                                         std::memory_order_relaxed)) {
    }
  }
  /// Destroys their payloads and frees them.
  void bury() noexcept {
    if (first_.load(std::memory_order_relaxed) != nullptr) bury_all();
  }

 private:
  void bury_all() noexcept;

  std::atomic<runnable*> first_{nullptr};  ///< linked by runnable::next
};

}  // namespace verge::detail
