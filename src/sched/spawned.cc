// SPDX-License-Identifier: Apache-2.0

// The part of a spawned task's record that is the same for every task.

#include <verge/detail/spawned.h>
#include <verge/errors.h>

#include <mutex>
#include <utility>

#include <base/this_thread.h>
#include <sched/live_scheduler.h>
#include <sched/living_schedulers.h>

namespace verge::detail {

namespace {

/// All schedulers, linked through themselves: to add one or to remove it needs no memory.
class living_schedulers {
 public:
  void add(scheduler& s) noexcept {
    std::lock_guard held(lock);
    s.next_living = first_;
    first_ = &s;
  }
  void remove(const scheduler& s) noexcept {
    std::lock_guard held(lock);
    scheduler** link = &first_;
    while (*link != nullptr && *link != &s) link = &(*link)->next_living;
    if (*link != nullptr) *link = s.next_living;
  }
  /// s may not exist any more.
  bool contains(const scheduler& s) noexcept {
    std::lock_guard held(lock);
    const scheduler* at = first_;
    while (at != nullptr && at != &s) at = at->next_living;
    return at != nullptr;
  }

  std::mutex lock;

 private:
  scheduler* first_{nullptr};
};
constinit living_schedulers schedulers;

bool is_cancellation(const std::exception_ptr& e) noexcept {
  try {
    std::rethrow_exception(e);
  } catch (const cancelled&) {
    return true;
  } catch (...) {
    return false;
  }
}

// Passes an exception, if there is one, to the handler of a runtime. That a task was cancelled is
// intended, and not passed.
void hand_over(std::exception_ptr e, scheduler& s) noexcept {
  if (e && !is_cancellation(e)) s.unhandled(std::move(e));
}

/// A task's home, or if that has ended, the scheduler of the caller.
scheduler& home_or_default(scheduler& home) {
  if (schedulers.contains(home)) return home;
  return scheduler_or_default();
}

}  // namespace

void scheduler_begins(scheduler& s) noexcept { schedulers.add(s); }
void scheduler_ends(scheduler& s) noexcept { schedulers.remove(s); }
std::mutex& lock_of_schedulers() noexcept { return schedulers.lock; }

void spawned_base::launch() {
  try {
    home->job_started(*this);
  } catch (...) {
    delete this;
    throw;
  }
  home->ready(*this);
}

void spawned_base::run_spawned(runnable& r) noexcept {
  auto& self = static_cast<spawned_base&>(r);
  set_current_job(&self);
  if (self.cancellation.fired()) {
    self.finish_cancelled();
  } else {
    self.begin();
  }
  set_current_job(nullptr);
}

void spawned_base::abandon_spawned(job& j) noexcept {
  auto& self = static_cast<spawned_base&>(j);
  // Not set_current_job(): the worker that ran it last may not exist any more.
  job* const before = std::exchange(this_thread.running, &j);
  // A destructor that would wait for something finds that it must not; and the wait that is being
  // abandoned must not be woken.
  j.cancellation.fire_in_silence();
  j.spread.store(false, std::memory_order_relaxed);  // no worker runs any more
  self.finish_cancelled();
  this_thread.running = before;
}

void spawned_base::finish_cancelled() noexcept {
  destroy_work();
  set_error(std::make_exception_ptr(cancelled()));
  complete();
}

void spawned_base::finish() noexcept {
  // The caller is the task's own code, and so may be all that called it, down to run_ready().
  // Unless the coroutine was resumed by other means than its scheduler: then this thread runs
  // another job, or none.
  if (this_thread.running == this) {
    this_thread.ended = this;
  } else {
    complete();
  }
}

void run_ready(runnable& r) noexcept {
  r.run(r);
  // Release: all that this thread did in the code of a job happens before the job's end.
  if (worker* const w = this_thread.as_worker) w->inside.store(nullptr, std::memory_order_release);
  if (spawned_base* const t = std::exchange(this_thread.ended, nullptr)) t->complete();
}

void spawned_base::complete() noexcept {
  if (spread.load(std::memory_order_relaxed)) [[unlikely]]
    runner.load(std::memory_order_relaxed)->home.wait_until_left(*this);
  // The bits are only ever set, so if the handle is destroyed then nothing else takes the
  // exception, and the runtime gets it before it is told that the job has ended.
  scheduler& s = *home;
  if ((let_go_.load(std::memory_order_acquire) & by_handle) != 0) hand_over(take_error(), s);
  s.job_ended(*this);
  // Acquire and release: the side that deletes sees all that the other one did. Before `ended`
  // fires, so that after a join it is the handle that deletes: that runs the task's own code.
  if ((let_go_.fetch_or(by_task, std::memory_order_acq_rel) & by_handle) == 0) {
    ended.fire(waiter::by_event);
    return;
  }
  hand_over(take_error(), s);
  delete this;
}

void spawned_base::drop_handle() noexcept {
  if ((let_go_.fetch_or(by_handle, std::memory_order_acq_rel) & by_task) == 0) return;
  ended.wait_until_fired();
  if (auto e = take_error()) hand_over(std::move(e), home_or_default(*home));
  delete this;
}

}  // namespace verge::detail
