// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include <sched/bit_set.h>
#include <sched/processor.h>
#include <sched/processor_set.h>

/// What is idle - processors that no worker holds, workers that hold none - and how many workers
/// spin, that is, look for something to run. Together they answer one question: does a worker have
/// to be started for what was just made ready?
///
/// Ground rules
///  - Functions that end in `_locked` are called under the scheduler's lock, which guards the set
///    of processors and the list of workers.
///  - `count_` is the size of the set of processors. It is written under the lock and read by any
///    thread. `spinning_` is changed by any thread. Both are relaxed: the full fences of the
///    agreement on lost wake-ups (live_scheduler.h) order them against the queues.
///  - A spinning worker is counted by the thread that starts it, or by itself, and uncounted by
///    itself. claim_wakeup() raises the count from zero only, so of several threads that make
///    something ready at once one starts a worker; the others rely on that worker, which looks at
///    every queue before it stops spinning, and once more after that.
///  - A worker that is counted may not run: the thread that is to start it, or the worker itself,
///    may have lost its core. So a thread that relies on it tells the monitor, which starts another
///    worker if for a millisecond none has stopped spinning (sysmon.cc). The count of those stops
///    is in the high half of the same word.
///  - `worker::spinning` and the list's links belong to the worker while it is not in the list, and
///    are guarded by the lock while it is.
namespace verge::detail {

class idle_set {
 public:
  // --- Processors.

  unsigned count() const noexcept { return count_.load(std::memory_order_relaxed); }
  bool any() const noexcept { return count() != 0; }

  bool contains_locked(unsigned id) const noexcept { return idle_.test(id); }
  /// The lowest number of an idle processor; processor_set::max_processors if none is idle.
  unsigned first_locked() const noexcept { return static_cast<unsigned>(idle_.first()); }
  void add_locked(const processor& p) noexcept {
    idle_.set(p.id);
    count_.fetch_add(1, std::memory_order_relaxed);
  }
  void remove_locked(const processor& p) noexcept {
    idle_.reset(p.id);
    count_.fetch_sub(1, std::memory_order_relaxed);
  }

  // --- Workers.

  void park_locked(worker& w) noexcept {
    w.given = nullptr;
    w.next_idle = std::exchange(workers_, &w);
  }
  /// The worker that was parked last, or nullptr.
  worker* unpark_locked() noexcept {
    worker* const w = workers_;
    if (w != nullptr) workers_ = w->next_idle;
    return w;
  }
  /// Wakes all of them, with no processor: they end.
  void dismiss_workers_locked() noexcept {
    while (worker* const w = unpark_locked()) w->parked.leave();
  }

  // --- Spinning.

  unsigned spinning() const noexcept { return count_of(spinning_.load(std::memory_order_relaxed)); }
  /// Changes whenever a worker stops spinning.
  std::uint32_t stops() const noexcept {
    return static_cast<std::uint32_t>(spinning_.load(std::memory_order_relaxed) >> 32);
  }

  /// What a thread that has made something ready has to do about it.
  enum class wakeup : std::uint8_t {
    none,     ///< no processor is idle
    coming,   ///< a worker spins, or another thread is about to start one
    claimed,  ///< the caller has to start a spinning worker, which is counted already
  };
  /// A full fence must come before this.
  wakeup claim_wakeup() noexcept {
    if (!any()) return wakeup::none;
    std::uint64_t seen = spinning_.load(std::memory_order_relaxed);
    while (count_of(seen) == 0) {
      if (spinning_.compare_exchange_weak(seen, seen + 1, std::memory_order_relaxed)) {
        return wakeup::claimed;
      }
    }
    return wakeup::coming;
  }
  /// By the monitor, even if workers spin: as claim_wakeup() that has claimed.
  void claim_another() noexcept { spinning_.fetch_add(1, std::memory_order_relaxed); }
  /// Takes back what claim_wakeup() has counted: no worker was started.
  void unclaim_wakeup() noexcept { spinning_.fetch_add(one_stop - 1, std::memory_order_relaxed); }

  void start_spinning(worker& w) noexcept {
    w.spinning = true;
    spinning_.fetch_add(1, std::memory_order_relaxed);
  }
  /// True if w was the last one.
  bool stop_spinning(worker& w) noexcept {
    w.spinning = false;
    return count_of(spinning_.fetch_add(one_stop - 1, std::memory_order_relaxed)) == 1;
  }

 private:
  /// Low half: workers that spin. High half: how often one has stopped.
  static constexpr std::uint64_t one_stop = std::uint64_t{1} << 32;
  static constexpr unsigned count_of(std::uint64_t word) noexcept {
    return static_cast<unsigned>(word % one_stop);
  }

  bit_set<processor_set::max_processors> idle_;
  worker* workers_{nullptr};
  std::atomic<unsigned> count_{0};
  /// On a line of its own: it changes with every worker that looks for work.
  alignas(64) std::atomic<std::uint64_t> spinning_{0};
};

}  // namespace verge::detail
