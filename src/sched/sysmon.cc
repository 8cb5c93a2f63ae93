// SPDX-License-Identifier: Apache-2.0

// What the monitor looks at, and how it mends what no worker sees: a thread without a processor
// that watches those that have one. monitor.h has the thread, and says when it looks.

#include <algorithm>
#include <mutex>

#include <engine/clockwork.h>
#include <sched/live_scheduler.h>

namespace verge::detail {

namespace {

/// How long the poller may go without a look at it.
constexpr std::int64_t poll_interval = 10'000'000;
/// How long no processor may come round before spare ones begin new tasks, and how long before
/// there is one more of these. Without this, tasks that are merely slow would all be begun at once.
constexpr std::int64_t begin_after = 100'000'000;

constexpr std::int64_t stuck_after = progress_watch::stuck_after;
/// How late the worker in the poller may be for a timer before it is woken, and before another is
/// started for the timer. How long all workers that spin may go on without finding anything.
constexpr std::int64_t wake_poller_after = 3'000'000;
constexpr std::int64_t replace_poller_after = 5'000'000;
constexpr std::int64_t longest_spinning = 900'000;

}  // namespace

/// If every processor is idle and there are timers, a worker must sleep in the poller for them.
bool live_scheduler::allows_deep_sleep() noexcept {
  std::lock_guard held(lock_);
  if (stopping_.load(std::memory_order_relaxed) || !all_idle()) return false;
  const std::int64_t next = time_sleep_until().when;
  if (next != 0 && !poll_.ends_by(next)) return false;
  // Threads that rely on a spinning worker look whether the monitor naps after they have queued
  // something.
  if (idle_.spinning() != 0 || anything_queued()) return false;
  // A spare processor, or one that is to retire, may still be at work while all others are idle,
  // and stall.
  if (stalls_.owes_report()) return false;
  if (stalls_.looks() && (spares_.any_at_work_locked(all_) || all_.any_retires())) return false;
  monitor_.fall_asleep_locked();
  return true;
}

void live_scheduler::monitor_begins() noexcept {
  realtime::state own;
  realtime_.raise(own);
}

void live_scheduler::trim_memory() noexcept {
  timers_->trim();
  engine_->trim();
}

bool live_scheduler::can_trim_memory() const noexcept {
  return timers_->can_trim() || engine_->can_trim();
}

void live_scheduler::prepare_memory() noexcept {
  timers_->prepare();
  engine_->prepare_memory();
}

/// Whether no worker that spins, or is to, has found what there is for a while. They, or the
/// threads that are to start them, have no core. To be called as long as there is something.
bool live_scheduler::spinning_is_stuck(std::int64_t now) noexcept {
  const std::uint32_t stops = idle_.stops();
  if (spinning_since_ == 0 || stops != stops_seen_) {
    spinning_since_ = now;
    stops_seen_ = stops;
  }
  return now - spinning_since_ > longest_spinning;
}

/// Turns that take long.
void live_scheduler::look_at_stalls(std::int64_t now) noexcept {
  if (!stalls_.due(now)) return;
  stalls_.begin_look(now);
  {
    std::lock_guard held(lock_);
    for (const auto& w : workers_) stalls_.look_locked(*w, now);
  }
  stalls_.finish_look(now);
}

/// The earliest timer, and whether anything is queued, but for what a processor that comes round
/// looks after itself: its queue, and its timers that are due. When many are overdue, workers that
/// are woken for them only take cache lines from each other, and the monitor a core from them.
live_scheduler::waiting_work live_scheduler::look_for_work(std::int64_t now) noexcept {
  waiting_work found{.next = {.when = 0, .of = 0}, .queued = !global_.empty(), .left = false};
  all_.for_each([&](const processor& p) {
    const std::int64_t when = is_spare(p) ? 0 : engine_->next_when(p.id);
    const bool due = when != 0 && when <= now;
    const bool queued = !p.queue.empty();
    const bool left = (due || queued) && comes_round(p, now);
    found.left = found.left || left;
    found.queued = found.queued || (queued && !left);
    if (when == 0 || (due && left)) return;
    if (found.next.when == 0 || when < found.next.when) found.next = {.when = when, .of = p.id};
  });
  return found;
}

/// Whether a worker holds p and was seen to look for something to run on it lately.
bool live_scheduler::comes_round(const processor& p, std::int64_t now) noexcept {
  if (!progress_.moved_lately(p, now)) return false;
  std::lock_guard held(lock_);
  return is_spare(p) || !idle_.contains_locked(p.id);
}

bool live_scheduler::sysmon_look(std::int64_t now) noexcept {
  coarse_now.store(now, std::memory_order_relaxed);
  look_at_stalls(now);
  bool mended = false;
  const auto [moved, came_round, left_behind] = progress_.look(all_, now);
  const bool idle = idle_.any();
  const waiting_work work = look_for_work(now);
  const std::int64_t next = work.next.when;
  const bool none_polls = poll_.no_worker_sleeps();
  // Not if it is never due: that is the end of time.
  const bool comes = next != 0 && next < INT64_MAX - wake_poller_after;
  look_by_ = comes ? std::max(next + wake_poller_after, now + monitor::watchful_sleep) : 0;
  // Whether the processors to which something was left still come round.
  if (work.left) look_by_ = now + monitor::called_sleep;
  // The worker that came from the poller has stayed with what it found there.
  const bool poller_is_left =
      poller_.has_sources() && none_polls && poll_.last_look() + poll_interval < now;

  const bool wanted =
      // Something is ready: a task that handed over has not suspended.
      work.queued ||
      // A timer is due, or will be before the next look, and no worker sleeps until then.
      (next != 0 && next < now + monitor::longest_sleep && none_polls) ||
      // A timer is overdue, and the worker that sleeps until then has not come for it. It may have
      // been woken, and have no core.
      (next != 0 && next < now - replace_poller_after) ||
      // A worker that finds nothing to run goes to sleep there.
      poller_is_left;
  if (!idle || !wanted) {
    spinning_since_ = 0;
  } else if (idle_.spinning() == 0) {
    mended = wake_processor();
  } else if (spinning_is_stuck(now)) {
    spinning_since_ = 0;
    idle_.claim_another();
    start_worker(nullptr, true);
    mended = true;
  } else {
    look_by_ = now + monitor::called_sleep;
  }

  // A timer is overdue, and the poll sleeps past it. Two harmless cases are left out: a poll that
  // ends soon, because its worker has left the timer to another; and a timer that has fired while
  // this thread had no core.
  if (next != 0 && next < now - wake_poller_after && !none_polls &&
      !poll_.ends_by(now + wake_poller_after) && engine_->next_when(work.next.of) == next &&
      poller_.rescue_poll()) {
    poll_rescues_.add();
    mended = true;
  }

  // All are busy, and something is late. A processor that moves does it for the others.
  const bool overdue = next != 0 && next < now - stuck_after && none_polls;
  if (!idle && (overdue || left_behind)) {
    if (moved) {
      spares_.report_left_behind();
      mended = true;
    } else {
      mended = bring_up_spare(stuckness::some, now) || mended;
    }
  }

  // A callback that takes long has begun at the priority of a sleeper.
  if (realtime_.wanted()) {
    std::lock_guard held(lock_);
    for (const auto& w : workers_)
      realtime_.look(w->priority, w->thread_id.load(std::memory_order_relaxed), now);
  }

  // Something waits in the global queue, and no processor comes round to it.
  const stuckness queue = look_at_global_queue(now, idle || came_round);
  if (queue != stuckness::none) mended = bring_up_spare(queue, now) || mended;

  // No worker has looked there for long: all are busy, or the one that is woken is not there yet.
  if (poller_is_left) {
    ready_list found = poller_.poll(0);
    poll_.looked(now);
    mended = mended || !found.empty();
    inject(std::move(found));
  }
  return mended;
}

/// Whether the global queue needs a spare processor: for long nothing was taken from it, and no
/// processor has come round that would. Tasks that were suspended and callbacks that have fired
/// wait for less long than new tasks do, unless all processors are known to be stuck and every task
/// that a spare processor has begun since has ended.
stuckness live_scheduler::look_at_global_queue(std::int64_t now, bool came_round) noexcept {
  if (came_round || global_.empty()) {
    progress_.queue_is_well(now);
    return stuckness::none;
  }
  if (progress_.queue_still_for(now) < stuck_after) return stuckness::none;
  std::lock_guard held(lock_);
  if (progress_.queue_moved_locked(global_)) {
    progress_.queue_is_well(now);
    return stuckness::none;
  }
  const stuckness found = global_.only_new_tasks_locked() ? stuckness::all : stuckness::some;
  const bool at_once =
      found == stuckness::some || (spares_.stuck() == found && spares_.for_tasks_locked() == 0);
  if (!at_once && progress_.queue_still_for(now) < begin_after) return stuckness::none;
  progress_.queue_is_well(now);
  return found;
}

}  // namespace verge::detail
