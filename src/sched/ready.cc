// What has become ready: onto which queue it goes, and who is woken to run it.

#include <base/fence.h>
#include <base/this_thread.h>
#include <sched/live_scheduler.h>

namespace verge::detail {

worker* live_scheduler::worker_with_processor() noexcept {
  worker* w = this_thread.as_worker;
  return w != nullptr && &w->home == this && w->held != nullptr ? w : nullptr;
}

void live_scheduler::ready(runnable& r) noexcept {
  if (this_thread.polls_for == this) return this_thread.found->push_back(r);
  if (worker* w = worker_with_processor()) {
    push_local(*w->held, r);
    if (!w->firing) wake_processor();
    return;
  }
  if (lost()) return;  // no thread will run it, and the lock may be held for ever
  if (this_thread.drives_engine) {
    push_fired(r);
  } else {
    std::lock_guard held(lock_);
    if (ended_) return;  // r may be gone
    global_.push_back(r);
    global_size_.store(global_.size() + fired_.size(), std::memory_order_relaxed);
  }
  wake_processor();
}

/// Nobody is woken for what runs next: its processor runs it the moment the caller suspends, and a
/// wake-up per hand-over would cost a hundred times the hand-over. Should the caller not suspend
/// the monitor sees to it.
void live_scheduler::ready_next(runnable& r) noexcept {
  if (this_thread.polls_for == this) return this_thread.found->push_back(r);
  worker* w = worker_with_processor();
  // What a timer makes ready keeps its place behind what an earlier timer did.
  if (w == nullptr || w->firing) return ready(r);
  runnable* before = w->held->queue.push_next(r);
  if (before == nullptr) return;
  push_local(*w->held, *before);
  wake_processor();
}

/// Nobody is woken here either: the caller's worker is about to look for something to run, and
/// looks at the global queue and the poller first.
void live_scheduler::ready_last(runnable& r) noexcept {
  worker* w = worker_with_processor();
  if (w == nullptr) return ready(r);
  w->held->yielded = true;
  push_local(*w->held, r);
}

void live_scheduler::push_local(processor& p, runnable& r) noexcept {
  while (!p.queue.push(r)) {
    ready_list half = p.queue.spill();
    if (half.empty()) continue;  // a thief has made room
    half.push_back(r);
    return push_global(std::move(half));
  }
}

void live_scheduler::push_global(ready_list&& list) noexcept {
  std::lock_guard held(lock_);
  global_.append(std::move(list));
  global_size_.store(global_.size() + fired_.size(), std::memory_order_relaxed);
}

void live_scheduler::push_fired(runnable& r) noexcept {
  std::lock_guard held(lock_);
  fired_.push_back(r);
  global_size_.store(global_.size() + fired_.size(), std::memory_order_relaxed);
}

runnable* live_scheduler::pop_global_locked() noexcept {
  runnable* r = fired_.pop_front();
  if (r == nullptr) r = global_.pop_front();
  if (r != nullptr) ++global_taken_;
  global_size_.store(global_.size() + fired_.size(), std::memory_order_relaxed);
  return r;
}

void live_scheduler::inject(ready_list&& list) noexcept {
  if (list.empty()) return;
  push_global(std::move(list));
  wake_processor();
}

/// Sees to it that what was just queued is found, if a processor is idle and nobody looks already.
void live_scheduler::wake_processor() noexcept {
  // Queue first, then look: see the ground rules.
  full_fence();
  if (idle_count_.load(std::memory_order_relaxed) == 0) return;
  unsigned nobody = 0;
  if (spinning_.load(std::memory_order_relaxed) != 0 ||
      !spinning_.compare_exchange_strong(nobody, 1, std::memory_order_relaxed)) {
    return;
  }
  start_worker(nullptr, true);
}

/// A timer that is first in its queue is due at `when`.
void live_scheduler::wake_net_poller(std::int64_t when) noexcept {
  full_fence();
  const std::int64_t until = poll_until_.load(std::memory_order_relaxed);
  if (until != 0) {
    if (until > when) poller_.break_poll();
    return;
  }
  // Nobody polls. A worker with a processor looks at the timers itself, before it would poll.
  if (worker_with_processor() == nullptr) wake_processor();
}

}  // namespace verge::detail
