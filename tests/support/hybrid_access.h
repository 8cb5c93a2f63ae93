// SPDX-License-Identifier: Apache-2.0
// Shared by tests of engine hybrid: access to its internals.
#pragma once

#include <atomic>
#include <cstdint>

#include <engine/hybrid.h>

namespace verge::detail {

/// As a thread that was preempted while it had the lock of a processor's timers.
struct hybrid_access {
  static auto& lock(timer_engine& e, unsigned p) {
    return static_cast<hybrid&>(e).timers_[p]->lock;
  }
  /// As a thread leaves a timer that it was about to enter when another one has stopped it.
  static void leave_disarmed(timer_node& t) { word(t).store(0); }
  static std::atomic<std::uint64_t>& word(timer_node& t) {
    return hybrid::policy::word(hybrid::as_node(t));
  }
  /// What its wheels take their memory from.
  static slab_pool& chunks(timer_engine& e) { return static_cast<hybrid&>(e).chunks_; }
};

}  // namespace verge::detail
