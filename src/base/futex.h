// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>

/// The kernel's futex, and a note built on it: one thread sleeps until another leaves the note.
namespace verge::detail {

/// Sleeps while word == expected, at most until the monotonic time `until` (0: no limit). May
/// return spuriously.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected,
                       std::int64_t until = 0) noexcept {
  timespec ts{};
  timespec* limit = nullptr;
  if (until != 0) {
    ts.tv_sec = static_cast<time_t>(until / 1'000'000'000);
    ts.tv_nsec = static_cast<long>(until % 1'000'000'000);
    limit = &ts;
  }
  // The bitset form takes an absolute time on CLOCK_MONOTONIC.
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word),
            FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected, limit, nullptr,
            FUTEX_BITSET_MATCH_ANY);
}

inline void futex_wake(std::atomic<std::uint32_t>& word, int threads) noexcept {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE | FUTEX_PRIVATE_FLAG,
            threads);
}

/// One thread waits for the note until another leaves it. Leaving it once ends one wait.
class note {
 public:
  void leave() noexcept {
    if (word_.exchange(1, std::memory_order_release) == 0) futex_wake(word_, 1);
  }
  /// For a note that several threads may leave: when this has returned the sleeper is awake. After
  /// leave() it may not be, if another thread has left the note and lost its core before it woke
  /// the sleeper.
  void leave_surely() noexcept {
    word_.exchange(1, std::memory_order_release);
    futex_wake(word_, 1);
  }
  void wait() noexcept {
    while (word_.exchange(0, std::memory_order_acquire) == 0) futex_wait(word_, 0);
  }
  /// Waits at most until `until` on the monotonic clock. Returns true if the note was left.
  bool wait_until(std::int64_t until) noexcept {
    if (word_.exchange(0, std::memory_order_acquire) == 1) return true;
    futex_wait(word_, 0, until);
    return word_.exchange(0, std::memory_order_acquire) == 1;
  }

 private:
  std::atomic<std::uint32_t> word_{0};
};

}  // namespace verge::detail
