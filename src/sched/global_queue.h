// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <base/ready_list.h>
#include <sched/run_queue.h>
#include <verge/detail/spawned.h>

/// The queue that all processors share: what threads without a processor make ready, what does not
/// fit into a local queue, and what processors leave behind.
///
/// It is two lists. What an engine's own threads have fired is taken first, and spare processors
/// may run it at any time; everything else waits in the order in which it came.
///
/// Ground rules
///  - Functions that end in `_locked` are called under the scheduler's lock, which guards both
///    lists. The lock is not the queue's own: a worker that finds the queue empty puts its
///    processor among the idle ones in the same critical section, so nothing can be queued between
///    the two.
///  - `size_` is the length of both lists. It is written under the lock and read by any thread with
///    relaxed order. An old value is harmless: a thread that queues something and one that stops
///    looking each pass a full fence before they look at the other's word (live_scheduler.h).
namespace verge::detail {

class global_queue {
 public:
  /// From any thread; the answer may be old.
  bool empty() const noexcept { return size_.load(std::memory_order_relaxed) == 0; }

  void push_locked(runnable& r) noexcept {
    others_.push_back(r);
    ++pushed_;
    count();
  }
  void append_locked(ready_list&& list) noexcept {
    pushed_ += static_cast<std::uint32_t>(list.size());
    others_.append(std::move(list));
    count();
  }
  void push_fired_locked(runnable& r) noexcept {
    fired_.push_back(r);
    count();
  }

  runnable* pop_locked() noexcept {
    runnable* r = fired_.pop_front();
    if (r == nullptr) {
      r = others_.pop_front();
      if (r != nullptr) ++popped_;
    }
    if (r != nullptr) ++taken_;
    count();
    return r;
  }

  /// Returns one to run, and moves a fair share of the rest into `local`, so that its owner comes
  /// back less often, but no more than fits.
  runnable* take_share_locked(run_queue& local, unsigned processors) noexcept {
    runnable* first = pop_locked();
    if (first == nullptr) return nullptr;
    std::size_t share = (others_.size() + fired_.size()) / processors;
    share = std::min<std::size_t>(share, run_queue::capacity / 2 - local.size() / 2);
    for (; share > 0; --share) {
      runnable* r = pop_locked();
      if (!local.push(*r)) {
        push_locked(*r);
        break;
      }
    }
    return first;
  }

  /// Whether the first of the queue is a task that has yet to begin. All behind it waits for it.
  bool only_new_tasks_locked() const noexcept {
    return fired_.empty() && (others_.empty() || spawned_base::is_new(*others_.front()));
  }

  // How long something waits here: one at a time is watched, the last one at that moment.

  bool wants_watch_locked() const noexcept {
    return watched_since_ == 0 && pushed_ % pushes_per_watch == 0 && !others_.empty();
  }
  void watch_last_locked(std::int64_t now) noexcept {
    watched_ = pushed_;
    watched_since_ = now;
  }
  /// Since when the one that was watched has waited, if it has been taken; else 0.
  std::int64_t taken_since_locked() noexcept {
    if (watched_since_ == 0 || static_cast<std::int32_t>(popped_ - watched_) < 0) return 0;
    return std::exchange(watched_since_, 0);
  }

  /// How many were ever taken. It tells the monitor whether the queue moves.
  std::uint32_t taken_locked() const noexcept { return taken_; }

 private:
  void count() noexcept { size_.store(others_.size() + fired_.size(), std::memory_order_relaxed); }

  ready_list others_;
  ready_list fired_;
  std::uint32_t taken_{0};
  static constexpr std::uint32_t pushes_per_watch = 16;
  /// How many came into and left the second list, and which of them is watched.
  std::uint32_t pushed_{0};
  std::uint32_t popped_{0};
  std::uint32_t watched_{0};
  std::int64_t watched_since_{0};
  std::atomic<std::size_t> size_{0};
};

}  // namespace verge::detail
