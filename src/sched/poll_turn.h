// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include <base/fence.h>

/// The turn to sleep in the poller: one worker at a time has it, and says until when it sleeps.
///
/// Ground rules
///  - `taken_` is exchanged by the worker that wants the turn and cleared by the worker that has
///    it.
///  - `until_` is written by the worker that has the turn and read by any thread. No timer is slept
///    past: the worker first publishes, with try_begin(), that it may sleep forever, then looks
///    for the earliest timer of all, then lowers `until_` to that. A thread that starts a timer
///    first publishes it in its queue, then reads `until_`. A full fence stands between the two
///    steps on both sides, so either the worker sees the timer or the thread sees the worker and
///    wakes it.
///  - `last_look_` is a hint, written by every thread that polls: it is compared with a time.
namespace verge::detail {

class alignas(64) poll_turn {
 public:
  /// Until when the worker in the poller may sleep; 0 while there is none. Relaxed: see above.
  std::int64_t until() const noexcept { return until_.load(std::memory_order_relaxed); }
  bool no_worker_sleeps() const noexcept { return until() == 0; }
  /// Whether a worker sleeps in the poller, and no longer than until `when`.
  bool ends_by(std::int64_t when) const noexcept {
    const std::int64_t until = this->until();
    return until != 0 && until <= when;
  }
  bool taken() const noexcept { return taken_.load(std::memory_order_relaxed); }

  /// When a thread last looked at the poller.
  std::int64_t last_look() const noexcept { return last_look_.load(std::memory_order_relaxed); }
  void looked(std::int64_t now) noexcept { last_look_.store(now, std::memory_order_relaxed); }

  /// Takes the turn, and publishes that the caller may sleep forever. False if another has it.
  bool try_begin() noexcept {
    if (taken_.exchange(true, std::memory_order_acquire)) return false;
    until_.store(INT64_MAX, std::memory_order_relaxed);
    full_fence();
    return true;
  }
  void sleeps_until(std::int64_t when) noexcept { until_.store(when, std::memory_order_relaxed); }
  void end(std::int64_t now) noexcept {
    until_.store(0, std::memory_order_relaxed);
    looked(now);
    taken_.store(false, std::memory_order_release);
  }

 private:
  std::atomic<std::int64_t> until_{0};
  std::atomic<bool> taken_{false};
  std::atomic<std::int64_t> last_look_{0};
};

}  // namespace verge::detail
