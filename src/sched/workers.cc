// SPDX-License-Identifier: Apache-2.0

// Workers, and which of them holds which processor.

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <base/fence.h>
#include <base/probes.h>
#include <base/runtime_thread.h>
#include <base/this_thread.h>
#include <clock/fast_clock.h>
#include <sched/live_scheduler.h>

namespace verge::detail {

processor* live_scheduler::take_idle_locked() noexcept {
  const unsigned i = idle_.first_locked();
  return i < max_processors ? take_idle_locked(all_[i]) : nullptr;
}

/// An idle processor, the preferred one if it is idle; a spare one while all are stuck.
processor* live_scheduler::take_idle_or_spare(unsigned preferred) noexcept {
  const taking_lock held(*this);
  if (idle_.contains_locked(preferred)) return take_idle_locked(all_[preferred]);
  if (processor* p = take_idle_locked()) return p;
  return spares_.all_stuck() ? take_spare_locked() : nullptr;
}

processor* live_scheduler::take_idle_locked(processor& p) noexcept {
  idle_.remove_locked(p);
  p.held_since = cheap_now();
  monitor_.processor_taken_locked();
  return &p;
}

void live_scheduler::put_idle_locked(processor& p) noexcept {
  if (is_spare(p)) return spares_.put_locked(p);
  count_held_locked(p);
  idle_.add_locked(p);
}

/// No worker holds p any more.
void live_scheduler::count_held_locked(processor& p) noexcept {
  p.idle_since = cheap_now();
  if (p.held_since != 0) p.held_before += p.idle_since - p.held_since;
  p.held_since = 0;
}

std::int64_t live_scheduler::held_for(const processor& p) const noexcept {
  std::lock_guard held(lock_);
  return p.held_before + (p.held_since != 0 ? fast_clock::now() - p.held_since : 0);
}

void live_scheduler::give_up_locked(worker& w) noexcept {
  processor& p = *w.held;
  w.held = nullptr;
  put_idle_locked(p);
}

/// Wakes or starts a worker for processor p, or for an idle one if p is nullptr. With `spinning`,
/// the worker is counted as spinning already. False if no thread can be started.
bool live_scheduler::start_worker(processor* p, bool spinning) noexcept {
  taking_lock held(*this);
  if (p != nullptr && ended_) {  // a task has ended the runtime, and is still running
    put_idle_locked(*p);
    p = nullptr;
  }
  if (p == nullptr && !stopping_.load(std::memory_order_relaxed)) p = take_idle_locked();
  if (p == nullptr) {
    if (spinning) idle_.unclaim_wakeup();
    return true;
  }
  worker* w = idle_.unpark_locked();
  if (w != nullptr) {
    held.unlock();
    w->given = p;
    w->spinning = spinning;
    w->parked.leave();
    return true;
  }
  try {
    auto made = std::make_unique<worker>(*this);
    w = made.get();
    w->held = p;
    w->spinning = spinning;
    workers_.push_back(std::move(made));
    std::string role = "w";
    role += std::to_string(workers_.size() - 1);
    w->thread = start_runtime_thread(thread_name(role), [this, w] { work(*w); });
    workers_started_.fetch_add(1, std::memory_order_relaxed);
    return true;
  } catch (...) {
    // There is no thread. The processor stays idle; the monitor tries again while there is work.
    // The worker that sleeps in the poller, or is on its way there, takes the processor and looks.
    if (w != nullptr && !workers_.empty() && workers_.back().get() == w) workers_.pop_back();
    put_idle_locked(*p);
    if (spinning) idle_.unclaim_wakeup();
    held.unlock();
    poller_.break_poll();
    return false;
  }
}

/// Sleeps until another thread gives this worker a processor. False when the scheduler stops.
bool live_scheduler::park(worker& w) noexcept {
  {
    std::lock_guard held(lock_);
    if (stopping_.load(std::memory_order_relaxed)) return false;
    idle_.park_locked(w);
  }
  VERGE_PROBE1(sleep, 0);
  w.parked.wait();
  w.held = w.given;
  if (w.held == nullptr) return false;
  woke(w, cheap_now());
  w.held->wakeups.add();
  return true;
}

/// What a worker does after a sleep, for reports.
void live_scheduler::woke(worker& w, std::int64_t now) noexcept {
  VERGE_PROBE1(wake, now);
  coarse_now.store(now, std::memory_order_relaxed);
  if (w.listens || !stalls_.captures()) return;
  w.listens = true;
  thread_probe::listen();
}

std::vector<live_scheduler::processor_state> live_scheduler::processor_states() const {
  std::vector<processor_state> states;
  const unsigned n = processors();
  states.reserve(n);
  std::lock_guard held(lock_);
  for (unsigned i = 0; i < n; ++i) {
    const processor& p = all_[i];
    states.push_back(
        {.id = i, .busy = p.held_since != 0, .since = p.held_since, .queued = p.queue.size()});
  }
  return states;
}

bool live_scheduler::acquire_or_park(worker& w) noexcept {
  {
    const taking_lock held(*this);
    if (stopping_.load(std::memory_order_relaxed)) return false;
    w.held = take_idle_locked();
  }
  return w.held != nullptr || park(w);
}

/// The worker has found something to run. If it was the last one that spun and there is more,
/// another takes its place: a thread that made something ready while this one spun has relied on
/// it, and this one has found something else. It looks at every queue, as a worker does that stops
/// spinning without work; Go starts the other in any case, which then looks at every queue.
void live_scheduler::stop_spinning(worker& w) noexcept {
  const bool last = idle_.stop_spinning(w);
  if (!last) return;
  full_fence();
  if (idle_.any() && (!w.held->queue.empty() || anything_stealable())) wake_processor();
}

/// Without what runs next: no worker is woken for that (ready_next).
bool live_scheduler::anything_stealable() const noexcept {
  bool any = !global_.empty();
  all_.for_each([&](const processor& p) { any = any || p.queue.size() != 0; });
  return any;
}

/// Gives the processor away for the time of a call that blocks.
void live_scheduler::hand_off(worker& w) noexcept {
  processor& p = *w.held;
  if (p.retiring.load(std::memory_order_relaxed) || is_spare(p)) {
    give_up_with_queue(w);
    if (w.held == nullptr) return;  // else it is not to be retired any more
  }
  w.held = nullptr;
  if (!p.queue.empty() || !global_.empty()) {
    start_worker(&p, false);
    return;
  }
  {
    std::lock_guard held(lock_);
    put_idle_locked(p);
  }
  // A worker has to look after the timers, and after what was put on the global queue just now.
  full_fence();
  if (poll_.no_worker_sleeps() || !global_.empty()) wake_processor();
}

/// After a call that blocked: takes the last processor back if it is idle, or another idle one. If
/// there is none, the worker goes on without one until the end of what it runs.
void live_scheduler::regain(worker& w, processor* last) noexcept {
  const taking_lock held(*this);
  if (stopping_.load(std::memory_order_relaxed)) return;
  if (last != nullptr && !is_spare(*last) && idle_.contains_locked(last->id)) {
    w.held = take_idle_locked(*last);
  } else {
    w.held = take_idle_locked();
  }
}

void live_scheduler::enter_blocking() noexcept {
  worker* w = worker_with_processor();
  // A worker that fires timers keeps its processor: the scan of the timers needs it afterwards.
  if (w == nullptr || w->held->firing.load(std::memory_order_relaxed)) return;
  w->before_blocking = w->held;
  w->end_turn();
  if (w->ran.time != 0) [[unlikely]]
    record_turn(*w);
  hand_off(*w);
}

void live_scheduler::leave_blocking() noexcept {
  worker* w = this_thread.as_worker;
  if (w == nullptr || &w->home != this || w->held != nullptr) return;
  regain(*w, w->before_blocking);
  if (w->held != nullptr) w->begin_turn();
  if (w->notes && w->held != nullptr &&
      w->held->traced.load(std::memory_order_relaxed) != nullptr) {
    w->ran.time = cheap_now();
  }
}

void live_scheduler::block(thread_waiter& waiter, const char* /*waiting_for*/) noexcept {
  if (waiter.woken()) return;
  worker* const w = runs_here() ? this_thread.as_worker : nullptr;
  if (w != nullptr) w->waits.store(true, std::memory_order_release);
  enter_blocking();
  waiter.wait_in_kernel();
  if (w != nullptr) {
    w->waits.store(false, std::memory_order_release);
    wait_forever_if_halted(*w);
  }
  leave_blocking();
}

void live_scheduler::unblock(thread_waiter& waiter) noexcept { waiter.wake_in_kernel(); }

}  // namespace verge::detail
