// The system monitor: a thread without a processor that mends what nobody else sees.
//
// It looks every 20 us while there is something to mend, backs off to every 10 ms while there is
// not, and sleeps for good once everything has been idle for a while: then it costs nothing, and
// the first processor that is taken wakes it.

#include <algorithm>

#include <clock/true_clock.h>
#include <sched/live_scheduler.h>

namespace verge::detail {

namespace {

constexpr std::int64_t us = 1'000;
constexpr std::int64_t ms = 1'000 * us;

constexpr std::int64_t shortest_sleep = 20 * us;
constexpr std::int64_t longest_sleep = 10 * ms;
/// After so many looks that found nothing the sleeps grow.
constexpr int patience = 50;
/// How long all must be idle before the monitor sleeps for good.
constexpr std::int64_t idle_before_deep_sleep = 100 * ms;
/// How long the poller may go unlooked at.
constexpr std::int64_t poll_interval = 10 * ms;
/// How late a timer must be, or how long something must have waited to go on, before a spare
/// processor comes up for it.
constexpr std::int64_t stuck_after = 10 * ms;
/// How long no processor may come round before new tasks are begun by spare ones, and how long
/// before there is one more of these. Tasks that are merely slow would otherwise all be begun.
constexpr std::int64_t begin_after = 100 * ms;

}  // namespace

void live_scheduler::sysmon() noexcept {
  std::int64_t sleep = shortest_sleep;
  int quiet = 0;
  std::int64_t idle_since = 0;
  while (!stopping_.load(std::memory_order_acquire)) {
    monitor_note_.wait_until(true_now() + sleep);
    monitor_wakeups_.add();
    const std::int64_t now = true_now();
    if (sysmon_look(now)) {
      quiet = 0;
      sleep = shortest_sleep;
    } else if (++quiet > patience) {
      sleep = std::min(2 * sleep, longest_sleep);
    }
    if (idle_count_.load(std::memory_order_relaxed) < processors()) {
      idle_since = 0;
    } else if (idle_since == 0) {
      idle_since = now;
    } else if (now - idle_since > idle_before_deep_sleep) {
      sysmon_deep_sleep();
      queue_still_since_ = true_now();
      // Most of what wakes it is over in no time: back off at once.
      idle_since = 0;
      quiet = patience;
      sleep = shortest_sleep;
    }
  }
}

/// Until a processor is taken. All being idle, somebody sleeps in the poller for the timers.
void live_scheduler::sysmon_deep_sleep() noexcept {
  {
    std::lock_guard held(lock_);
    if (stopping_.load(std::memory_order_relaxed)) return;
    if (idle_count_.load(std::memory_order_relaxed) < processors()) return;
    const std::int64_t next = time_sleep_until().when;
    if (next != 0 && !somebody_polls_until(next)) return;
    monitor_asleep_.store(true, std::memory_order_relaxed);
  }
  monitor_note_.wait();
}

bool live_scheduler::somebody_polls_until(std::int64_t when) const noexcept {
  const std::int64_t until = poll_until_.load(std::memory_order_relaxed);
  return until != 0 && until <= when;
}

/// One look. True if there was something to mend.
bool live_scheduler::sysmon_look(std::int64_t now) noexcept {
  bool mended = false;
  const auto [moved, came_round, left_behind] = look_at_processors(now);
  const bool idle = idle_count_.load(std::memory_order_relaxed) != 0;
  const bool nobody_looks = spinning_.load(std::memory_order_relaxed) == 0;

  // Something waits to run beside an idle processor: a hand-over whose giver did not suspend.
  if (idle && nobody_looks && anything_queued()) {
    wake_processor();
    mended = true;
  }

  // A timer is due, or will be before the next look, and nobody sleeps until then.
  const std::int64_t next = time_sleep_until().when;
  const bool nobody_polls = poll_until_.load(std::memory_order_relaxed) == 0;
  if (next != 0 && next < now + longest_sleep && nobody_polls) {
    if (idle && nobody_looks) {
      wake_processor();
      mended = true;
    }
  }

  // A timer is overdue, and the poll sleeps past it.
  if (next != 0 && next < now - stuck_after && !nobody_polls && !somebody_polls_until(next) &&
      poller_.rescue_poll()) {
    poll_rescues_.add();
    mended = true;
  }

  // All are busy, and something is not done in time. Those that move do it for the others.
  const bool overdue = next != 0 && next < now - stuck_after && nobody_polls;
  if (!idle && (overdue || left_behind)) {
    if (moved) {
      left_behind_.store(true, std::memory_order_relaxed);
      mended = true;
    } else {
      mended = bring_up_spare(stuckness::some, now) || mended;
    }
  }

  // What is in the global queue waits, and no processor comes round to it.
  const stuckness queue = look_at_global_queue(now, idle || came_round);
  if (queue != stuckness::none) mended = bring_up_spare(queue, now) || mended;

  // Nobody has looked at the poller for long: everybody is busy.
  if (poller_.has_sources() && nobody_polls &&
      last_poll_.load(std::memory_order_relaxed) + poll_interval < now) {
    ready_list found = poller_.poll(0);
    last_poll_.store(now, std::memory_order_relaxed);
    mended = mended || !found.empty();
    inject(std::move(found));
  }
  return mended;
}

live_scheduler::processor_look live_scheduler::look_at_processors(std::int64_t now) noexcept {
  processor_look look{.moved = false, .came_round = false, .left_behind = false};
  for_each_processor([&](const processor& p) {
    const std::uint32_t tick = p.tick.load(std::memory_order_relaxed);
    const bool moved = tick != monitor_ticks_[p.id];
    monitor_ticks_[p.id] = tick;
    still_.set(p.id, !moved);
    if (moved || p.queue.empty()) well_at_[p.id] = now;
    look.moved = look.moved || moved;
    look.came_round = look.came_round || (moved && !is_spare(p));
    look.left_behind = look.left_behind || well_at_[p.id] + stuck_after < now;
  });
  return look;
}

/// Whether the global queue needs a spare processor: nobody has taken anything from it for long,
/// nor has a processor come round that would. What had begun, or fired, is waited for less long
/// than what is to begin - unless all are known to be stuck for long, and all tasks begun since
/// ended.
auto live_scheduler::look_at_global_queue(std::int64_t now, bool came_round) noexcept -> stuckness {
  if (came_round || global_size_.load(std::memory_order_relaxed) == 0) {
    queue_still_since_ = now;
    return stuckness::none;
  }
  if (now - queue_still_since_ < stuck_after) return stuckness::none;
  std::lock_guard held(lock_);
  if (global_taken_ != global_taken_seen_) {
    global_taken_seen_ = global_taken_;
    queue_still_since_ = now;
    return stuckness::none;
  }
  const stuckness found = only_new_tasks_locked() ? stuckness::all : stuckness::some;
  const bool at_once = found == stuckness::some ||
                       (stuck_.load(std::memory_order_relaxed) == found && spares_for_tasks_ == 0);
  if (!at_once && now - queue_still_since_ < begin_after) return stuckness::none;
  queue_still_since_ = now;
  return found;
}

}  // namespace verge::detail
