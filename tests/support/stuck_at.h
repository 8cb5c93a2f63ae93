// SPDX-License-Identifier: Apache-2.0
// Makes a thread lose its core at a chosen point: at its n-th system call or lock of those that the
// runtime makes to wake others. It stays there until the test lets it go on, as a thread does that
// the kernel has preempted, only longer.
//
// Replaces, in the one source file of a program that includes it, write, read, syscall (for
// futexes) and pthread_mutex_lock. A thread is stuck before the call, with whatever locks it has.
//
//   stuck_at point(3, [] { return is_mine(); });   // the first thread for which this holds gets
//   ...                                            // stuck at the third of its calls
//   point.reached();                               // whether one is stuck now
//   point.let_go();                                // or at the end of the scope
//
//   unlucky_thread unlucky(3, [] { ... });         // a thread that gets stuck at the third of its
//   unlucky.stuck();                               // calls, and whether it is
//   unlucky.end();                                 // or at the end of the scope
#pragma once

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <ctime>
#include <thread>

#include "patience.h"
#include "replaced.h"

namespace verge::test {

class stuck_at {
 public:
  using condition = bool (*)() noexcept;

  stuck_at(int nth, condition of_thread) {
    left_.store(nth, std::memory_order_relaxed);
    state_.store(waiting, std::memory_order_relaxed);
    of_thread_.store(of_thread, std::memory_order_release);
  }
  ~stuck_at() {
    let_go();
    of_thread_.store(nullptr, std::memory_order_relaxed);
    // The thread has left the point before the next one is made.
    while (inside_.load(std::memory_order_acquire) != 0) nap();
    chosen_.store(0, std::memory_order_relaxed);
  }
  stuck_at(const stuck_at&) = delete;
  stuck_at& operator=(const stuck_at&) = delete;

  [[nodiscard]] static bool reached() { return state_.load(std::memory_order_acquire) == is_stuck; }
  static void let_go() { state_.store(free_, std::memory_order_release); }

  /// By every call that may be a point.
  static void pass() noexcept {
    const condition of_thread = of_thread_.load(std::memory_order_acquire);
    if (of_thread == nullptr || state_.load(std::memory_order_relaxed) != waiting) return;
    inside_.fetch_add(1, std::memory_order_acquire);
    if (is_chosen(of_thread) && left_.fetch_sub(1, std::memory_order_relaxed) == 1) stay();
    inside_.fetch_sub(1, std::memory_order_release);
  }

 private:
  enum : int { free_, waiting, is_stuck };

  /// One thread: the first for which the condition holds.
  static bool is_chosen(condition of_thread) noexcept {
    const auto me = static_cast<unsigned long>(::pthread_self());
    unsigned long chosen = chosen_.load(std::memory_order_relaxed);
    if (chosen == me) return true;
    return chosen == 0 && of_thread() &&
           chosen_.compare_exchange_strong(chosen, me, std::memory_order_relaxed);
  }
  static void stay() noexcept {
    int expected = waiting;
    if (!state_.compare_exchange_strong(expected, is_stuck)) return;
    while (state_.load(std::memory_order_acquire) == is_stuck) nap();
  }
  static void nap() noexcept {
    constexpr timespec ms{.tv_sec = 0, .tv_nsec = 1'000'000};
    ::nanosleep(&ms, nullptr);
  }

  inline static constinit std::atomic<condition> of_thread_{nullptr};
  inline static constinit std::atomic<int> state_{free_};
  inline static constinit std::atomic<int> left_{0};
  inline static constinit std::atomic<int> inside_{0};
  inline static constinit std::atomic<unsigned long> chosen_{0};
};

/// Whether the calling thread is the one that gets stuck.
inline thread_local bool is_to_be_stuck = false;
inline bool is_the_unlucky() noexcept { return is_to_be_stuck; }

/// Runs f on a thread of its own, which gets stuck at the n-th of f's calls.
class unlucky_thread {
 public:
  template <class F>
  unlucky_thread(int n, F f)
      : point_(n, &is_the_unlucky), thread_([this, f] {
          is_to_be_stuck = true;
          f();
          is_to_be_stuck = false;
          done_ = true;
        }) {
    EXPECT_TRUE(eventually([&] { return stuck_at::reached() || done_; }));
    stuck_ = stuck_at::reached();
  }
  ~unlucky_thread() { end(); }
  unlucky_thread(const unlucky_thread&) = delete;
  unlucky_thread& operator=(const unlucky_thread&) = delete;

  /// Or f has made fewer calls, and is through.
  [[nodiscard]] bool stuck() const { return stuck_; }
  /// Lets it go on, to the end of f.
  void end() {
    stuck_at::let_go();
    if (thread_.joinable()) thread_.join();
  }

 private:
  stuck_at point_;
  std::atomic<bool> done_{false};
  bool stuck_ = false;
  std::thread thread_;
};

}  // namespace verge::test

// NOLINTBEGIN: replacements have the names and types of what they replace.
extern "C" {

ssize_t write(int fd, const void* bytes, size_t n) {
  verge::test::stuck_at::pass();
  return VERGE_ORIGINAL(write)(fd, bytes, n);
}
ssize_t read(int fd, void* bytes, size_t n) {
  verge::test::stuck_at::pass();
  return VERGE_ORIGINAL(read)(fd, bytes, n);
}
int pthread_mutex_lock(pthread_mutex_t* m) noexcept {
  verge::test::stuck_at::pass();
  return VERGE_ORIGINAL(pthread_mutex_lock)(m);
}
long syscall(long number, ...) noexcept {
  va_list more;
  va_start(more, number);
  long a[6];
  for (long& each : a) each = va_arg(more, long);
  va_end(more);
  if (number == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAKE) verge::test::stuck_at::pass();
  return VERGE_ORIGINAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

}  // extern "C"

// NOLINTEND
