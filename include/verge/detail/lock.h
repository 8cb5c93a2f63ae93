// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#pragma GCC visibility push(default)

/// A lock for a few instructions: channels and timer queues are guarded by it.
///
/// It is four bytes, so that it can stand beside what it guards, on the same cache line. Taking it
/// is one compare-and-swap, releasing it one exchange. A thread that finds it held spins for a
/// moment, since the holder is about to be done, and then sleeps in the kernel, since the holder
/// may have been preempted.
///
/// The holder must not block, wake a thread, or run user code other than a move.
namespace verge::detail {

/// Tells the processor that this is a loop that waits for another thread.
inline void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// How to wait for another thread that has only a few instructions to go: spin; let others run if
/// that takes longer, as then the other thread has been preempted; and sleep if it still takes
/// longer, as then the other thread may be one that a yield does not let run: one of lower
/// priority, if the waiting thread has a real-time priority.
class backoff {
 public:
  void wait() noexcept {
    if (rounds_ < spins) {
      pause();
    } else if (rounds_ < spins + yields) {
      std::this_thread::yield();
    } else {
      return std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    ++rounds_;
  }

 private:
  static constexpr int spins = 64;
  static constexpr int yields = 64;
  int rounds_{0};
};

class short_lock {
 public:
  short_lock() = default;
  short_lock(const short_lock&) = delete;
  short_lock& operator=(const short_lock&) = delete;

  void lock() noexcept {
    if (!try_lock()) [[unlikely]]
      lock_slowly();
  }

  bool try_lock() noexcept {
    std::uint32_t expected = is_free;
    return word_.compare_exchange_strong(expected, is_held, std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }

  /// Whether lock() would have to wait at this moment. A hint.
  [[nodiscard]] bool taken() const noexcept {
    return word_.load(std::memory_order_relaxed) != is_free;
  }

  /// The lock's memory may go as soon as it is free for another to take: the address is all that is
  /// used after that, and the kernel does not mind one that is stale.
  void unlock() noexcept {
    if (word_.exchange(is_free, std::memory_order_release) == is_wanted) [[unlikely]]
      wake_one();
  }

 private:
  static constexpr std::uint32_t is_free = 0;
  static constexpr std::uint32_t is_held = 1;
  static constexpr std::uint32_t is_wanted = 2;  // held, and a thread may sleep for it

  void lock_slowly() noexcept;
  void wake_one() noexcept;

  std::atomic<std::uint32_t> word_{is_free};
};

static_assert(sizeof(short_lock) == 4);

}  // namespace verge::detail

#pragma GCC visibility pop
