// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

/// Real-time priority for the thread that sleeps until the next timer, and for the monitor
/// (runtime_options::realtime): on a busy machine the kernel runs such a thread as soon as it
/// wakes, before all ordinary ones.
///
/// A worker raises its priority before it sleeps. What it finds due it begins to run at that
/// priority: a thread that becomes an ordinary one on a busy machine waits for its turn like any
/// other, and the timer would be as late as without. It becomes an ordinary one before it runs
/// anything else, and a callback that takes longer than a millisecond is made one by the monitor.
/// A worker that sleeps again after one callback stays as it is, and makes no system call for it.
///
/// If the system refuses, all is as without, and error() says why.
///
/// Ground rules
///  - `state::raised` is set by the worker, and cleared by the worker or the monitor: by the one
///    that exchanges it, which then makes the thread an ordinary one. If the worker raises itself
///    again before the monitor has done so, it is an ordinary one until its next sleep but one.
///  - `state::since` is written by the worker: since when it runs something while raised, else 0.
///    The monitor reads it. Both order nothing.
namespace verge::detail {

class realtime {
 public:
  /// One worker's.
  struct state {
    std::atomic<bool> raised{false};
    std::atomic<std::int64_t> since{0};
  };

  /// 0: not wanted. Throws std::invalid_argument if it is not a priority.
  explicit realtime(int priority);

  [[nodiscard]] bool wanted() const noexcept { return priority_ != 0; }

  /// The calling thread is about to sleep.
  void raise(state& s) noexcept {
    if (wanted() && !s.raised.load(std::memory_order_relaxed)) raise_now(s);
  }
  /// The calling thread is about to run something. The first that it runs after a sleep begins at
  /// the sleeper's priority.
  void begin(state& s, std::int64_t now) noexcept;
  /// The monitor looks at a worker.
  void look(state& s, pid_t thread, std::int64_t now) noexcept;

  /// Whether a thread has got its priority.
  [[nodiscard]] bool granted() const noexcept { return granted_.load(std::memory_order_relaxed); }
  /// The errno of a refusal; 0 if there was none.
  [[nodiscard]] int error() const noexcept { return error_.load(std::memory_order_relaxed); }

 private:
  void raise_now(state& s) noexcept;
  static void lower(state& s, pid_t thread) noexcept;

  const int priority_;
  // Figures: they order nothing.
  std::atomic<bool> granted_{false};
  std::atomic<int> error_{0};
};

}  // namespace verge::detail
