// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include <verge/detail/lock.h>

/// A short_lock for what one thread takes again and again, a piece of work each time, while others
/// want it for a few instructions.
///
/// A short_lock is not fair: the thread that has just released it takes it again before a waiting
/// one can, so that a waiting thread may wait for all pieces. Here the thread with the pieces calls
/// let_others_in() between two of them, and others can avoid the wait altogether: taken().
///
/// Ground rules
///  - `waiting_` is the number of threads in lock() that have found it held. A hint: it publishes
///    nothing, and a thread that has just been counted, or not yet, costs or saves one pause.
///  - A thread spins for longer than with a short_lock before it sleeps, since a piece takes longer
///    than a few instructions: to sleep and to be woken takes ten times as long as a piece.
///  - let_others_in() gives up after a while: a waiting thread may have been preempted.
namespace verge::detail {

class turn_lock {
 public:
  void lock() noexcept {
    if (!inner_.try_lock()) [[unlikely]]
      lock_slowly();
  }
  bool try_lock() noexcept { return inner_.try_lock(); }
  void unlock() noexcept { inner_.unlock(); }

  /// Whether lock() would have to wait at this moment.
  [[nodiscard]] bool taken() const noexcept { return inner_.taken(); }
  /// How many threads wait. For tests.
  [[nodiscard]] unsigned waiting() const noexcept {
    return waiting_.load(std::memory_order_relaxed);
  }

  /// By a thread that has released it and is about to take it again.
  void let_others_in() const noexcept {
    for (int i = 0; i < most_pauses && waiting_.load(std::memory_order_relaxed) != 0; ++i) pause();
  }

 private:
  /// About 10 us.
  static constexpr int most_pauses = 400;

  void lock_slowly() noexcept {
    waiting_.fetch_add(1, std::memory_order_relaxed);
    bool done = false;
    for (int i = 0; i < most_pauses && !done; ++i) {
      pause();
      done = !inner_.taken() && inner_.try_lock();
    }
    if (!done) inner_.lock();
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }

  short_lock inner_;
  std::atomic<std::uint32_t> waiting_{0};
};

}  // namespace verge::detail
