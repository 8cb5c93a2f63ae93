// SPDX-License-Identifier: Apache-2.0

// The number of processors, and how it changes while they run.

#include <mutex>
#include <utility>

#include <sched/live_scheduler.h>

namespace verge::detail {

void live_scheduler::set_processors(unsigned n) {
  refuse_if_lost();
  processor_set::check_number(n);
  std::lock_guard one_at_a_time(resize_lock_);
  engine_->grow(n);
  all_.make_up_to(n);
  bit_set<max_processors> dropped;
  {
    std::lock_guard held(lock_);
    for (unsigned i = 0; i < all_.made(); ++i) {
      processor& p = all_[i];
      if (i < n) {
        p.retiring.store(false, std::memory_order_relaxed);
        if (!p.retired.load(std::memory_order_relaxed)) continue;
        p.retired.store(false, std::memory_order_relaxed);
        put_idle_locked(p);
      } else if (idle_.contains_locked(i)) {
        idle_.remove_locked(p);
        p.retired.store(true, std::memory_order_relaxed);
        dropped.set(i);
      } else if (!p.retired.load(std::memory_order_relaxed)) {
        p.retiring.store(true, std::memory_order_relaxed);  // its worker sees it before long
      }
    }
    all_.use_locked(n);
  }
  for (unsigned i = n; i < all_.made(); ++i) {
    if (dropped.test(i)) engine_->move_timers(i, i % n);
  }
  wake_processor();
}

/// Gives up a processor that is to be retired, or a spare one that is no longer needed. What is in
/// its queue is put on the global queue.
void live_scheduler::give_up_with_queue(worker& w) noexcept {
  processor& p = *w.held;
  ready_list all;
  while (runnable* r = p.queue.take_next()) all.push_back(*r);
  while (runnable* r = p.queue.take()) all.push_back(*r);
  bool retired = false;
  {
    std::lock_guard held(lock_);
    global_.append_locked(std::move(all));
    if (is_spare(p)) {
      give_up_locked(w);
    } else if (p.retiring.exchange(false, std::memory_order_relaxed)) {
      p.retired.store(true, std::memory_order_relaxed);
      count_held_locked(p);
      w.held = nullptr;
      retired = true;
    }
  }
  if (w.held == nullptr && w.spinning) idle_.stop_spinning(w);
  if (retired) engine_->move_timers(p.id, p.id % processors());
  wake_processor();
}

}  // namespace verge::detail
