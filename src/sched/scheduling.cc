// SPDX-License-Identifier: Apache-2.0

// The calling thread, and how it waits.

#include <verge/detail/scheduling.h>

#include <stdexcept>
#include <string>

#include <base/futex.h>
#include <base/this_thread.h>
#include <clock/simulated_time.h>
#include <sched/living_schedulers.h>
#include <sched/processor.h>
#include <sched/waiting_threads.h>

namespace verge::detail {

namespace {

/// Written by the child of a fork, when it has one thread.
constinit std::atomic<std::uint32_t> forks{0};

}  // namespace

constinit std::atomic<std::int64_t> coarse_now{0};

scheduler* current_scheduler() noexcept { return this_thread.current; }
job* current_job() noexcept { return this_thread.running; }

namespace {

[[gnu::noinline]] void note_turn(worker& w, const job& j) noexcept {
  w.ran.what = trace_event::kind::task;
  w.ran.label = j.label.load(std::memory_order_relaxed);
  w.ran.written = j.written;
  w.ran.code = j.code;
}

}  // namespace

// A coroutine can continue, on another worker, as soon as it is registered with what it waits for;
// the worker that it suspends on still has to return from its code then. Usually it has when the
// other one begins; if not, the end of the job has to wait for it (spawned_base::complete).
void set_current_job(job* j) noexcept {
  this_thread.running = j;
  worker* const here = this_thread.as_worker;
  if (j == nullptr) return;
  j->budget.store(operations_per_turn, std::memory_order_relaxed);
  if (here == nullptr) return;
  here->inside.store(j, std::memory_order_relaxed);  // published by what makes the job ready
  if (here->notes) [[unlikely]]
    note_turn(*here, *j);
  const worker* const last = j->runner.load(std::memory_order_relaxed);
  if (last == here) return;
  if (last != nullptr && last->inside.load(std::memory_order_acquire) == j) {
    j->spread.store(true, std::memory_order_relaxed);
  }
  j->runner.store(here, std::memory_order_relaxed);
}

void leave_in_child() noexcept {
  this_thread = {};
  simulated_time = nullptr;
  forks.fetch_add(1, std::memory_order_relaxed);
}

process_mark::process_mark() noexcept : forks_(forks.load(std::memory_order_relaxed)) {}

bool process_mark::lost() const noexcept { return forks_ != forks.load(std::memory_order_relaxed); }

void process_mark::refuse(const char* what) const {
  if (!lost()) [[likely]]
    return;
  throw std::logic_error(std::string("verge: this ") + what +
                         " was started before a fork; in the child it is lost, start a new one");
}

void coroutine_waiter::wake_coroutine(waiter& w) noexcept {
  auto& self = static_cast<coroutine_waiter&>(w);
  const scheduler::visit visit(*self.scheduler_);
  if (self.phase_.exchange(woken, std::memory_order_acq_rel) == parked) {
    visit.to().ready_next(self);
  }
}

void thread_waiter::wait(const char* waiting_for) noexcept {
  const void* const caller = __builtin_extract_return_addr(__builtin_return_address(0));
  if (scheduler_ == nullptr) {
    const waiting_thread_record here(waiting_for, caller);
    wait_in_kernel();
  } else if (this_thread.as_worker != nullptr && this_thread.running == nullptr) {
    const waiting_thread_record here(waiting_for, caller);  // a callback
    scheduler_->block(*this, waiting_for);
  } else {
    scheduler_->block(*this, waiting_for);
  }
}

void thread_waiter::wake_thread(waiter& w) noexcept {
  auto& self = static_cast<thread_waiter&>(w);
  if (self.scheduler_ != nullptr) {
    self.scheduler_->unblock(self);
  } else {
    self.wake_in_kernel();
  }
}

/// Three values: 0 not waiting yet, 1 woken, 2 the thread sleeps. The waker's exchange is its last
/// touch of the word; a wake-up at an address that is not in use any more is harmless, because
/// every thread that sleeps in the kernel checks its word again.
void thread_waiter::wait_in_kernel() noexcept {
  std::uint32_t seen = 0;
  if (!word_.compare_exchange_strong(seen, 2, std::memory_order_acquire)) return;
  while (word_.load(std::memory_order_acquire) != 1) futex_wait(word_, 2);
}

void thread_waiter::wake_in_kernel() noexcept {
  if (word_.exchange(1, std::memory_order_release) == 2) futex_wake(word_, 1);
}

}  // namespace verge::detail
