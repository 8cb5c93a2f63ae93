// SPDX-License-Identifier: Apache-2.0

// What has become ready: which queue it is put on, and which worker is woken to run it.

#include <base/fence.h>
#include <base/this_thread.h>
#include <sched/live_scheduler.h>

namespace verge::detail {

namespace {

/// Of so many places in a queue, the wait in one is measured.
constexpr std::uint32_t places_per_watch = 16;

}  // namespace

worker* live_scheduler::worker_with_processor() noexcept {
  worker* w = this_thread.as_worker;
  return w != nullptr && &w->home == this && w->held != nullptr ? w : nullptr;
}

void live_scheduler::ready(runnable& r) noexcept {
  if (this_thread.collects_for == this) return this_thread.found->push_back(r);
  if (worker* w = worker_with_processor()) {
    push_local(*w->held, r);
    if (!w->held->firing.load(std::memory_order_relaxed)) wake_processor();
    return;
  }
  if (lost()) return;  // no thread will run it, and the lock may be held forever
  {
    std::lock_guard held(lock_);
    if (this_thread.drives_engine) {
      global_.push_fired_locked(r);
    } else if (ended_) {
      return;  // r may have been destroyed
    } else {
      global_.push_locked(r);
      if (global_.wants_watch_locked()) global_.watch_last_locked(cheap_now());
    }
  }
  wake_processor();
}

/// No worker is woken for what runs next: its processor runs it as soon as the caller suspends, and
/// a wake-up per hand-over would cost a hundred times the hand-over. If the caller does not
/// suspend, the monitor wakes a worker.
void live_scheduler::ready_next(runnable& r) noexcept {
  if (this_thread.collects_for == this) return this_thread.found->push_back(r);
  worker* w = worker_with_processor();
  // What a timer makes ready keeps its place behind what an earlier timer did.
  if (w == nullptr || w->held->firing.load(std::memory_order_relaxed)) return ready(r);
  runnable* before = w->held->queue.push_next(r);
  if (before == nullptr) return;
  push_local(*w->held, *before);
  wake_processor();
}

/// No worker is woken here either: the caller's is about to look for something to run, and looks at
/// the global queue and the poller first.
void live_scheduler::ready_last(runnable& r) noexcept {
  worker* w = worker_with_processor();
  if (w == nullptr) return ready(r);
  w->held->yielded = true;
  push_local(*w->held, r);
}

void live_scheduler::push_local(processor& p, runnable& r) noexcept {
  const std::uint32_t place = p.queue.next_place();
  while (!p.queue.push(r)) {
    ready_list half = p.queue.spill();
    if (half.empty()) continue;  // a thief has made room
    half.push_back(r);
    return push_global(std::move(half));
  }
  if (counting && place % places_per_watch == 0 && p.watched_since == 0) {
    p.watched_place = place;
    p.watched_since = cheap_now();
  }
}

void live_scheduler::push_local(processor& p, ready_list& list) noexcept {
  // The first place of those that are measured, if it is among these.
  const std::uint32_t begin = p.queue.next_place();
  const std::uint32_t place = (begin + places_per_watch - 1) / places_per_watch * places_per_watch;
  p.queue.push_all(list);
  if (counting && place - begin < p.queue.next_place() - begin && p.watched_since == 0) {
    p.watched_place = place;
    p.watched_since = cheap_now();
  }
  while (runnable* r = list.pop_front()) push_local(p, *r);  // there was no room
}

void live_scheduler::push_global(ready_list&& list) noexcept {
  std::lock_guard held(lock_);
  global_.append_locked(std::move(list));
}

void live_scheduler::inject(ready_list&& list) noexcept {
  if (list.empty()) return;
  push_global(std::move(list));
  wake_processor();
}

/// Starts a worker that finds what was just queued, if a processor is idle and no worker spins.
/// False if there has to be one, and no thread can be started.
bool live_scheduler::wake_processor() noexcept {
  // Queue first, then look: see the ground rules.
  full_fence();
  switch (idle_.claim_wakeup()) {
    case idle_set::wakeup::none:
      break;
    case idle_set::wakeup::coming:
      monitor_.call();  // in case that it does not come
      break;
    case idle_set::wakeup::claimed:
      return start_worker(nullptr, true);
  }
  return true;
}

/// A timer that is first in its queue is due at `when`.
void live_scheduler::wake_net_poller(std::int64_t when) noexcept {
  full_fence();
  const std::int64_t until = poll_.until();
  if (until != 0) {
    if (until <= when) return;
    poller_.break_poll();
    return monitor_.call_if_asleep();  // in case that the sleeper wakes and gets no core
  }
  // No worker polls. One that has a processor looks at the timers itself before it polls.
  if (worker_with_processor() == nullptr) wake_processor();
}

}  // namespace verge::detail
