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
/// How late a timer must be before the spare processor comes up for it.
constexpr std::int64_t stuck_after = 10 * ms;

}  // namespace

void live_scheduler::sysmon() noexcept {
  set_timer_slack(1);
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
      idle_since = 0;
      quiet = 0;
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
    if (!polling_.load(std::memory_order_relaxed) && time_sleep_until() != 0) return;
    monitor_asleep_.store(true, std::memory_order_relaxed);
  }
  monitor_note_.wait();
}

/// One look. True if there was something to mend.
bool live_scheduler::sysmon_look(std::int64_t now) noexcept {
  bool mended = false;
  const bool idle = idle_count_.load(std::memory_order_relaxed) != 0;
  const bool nobody_looks = spinning_.load(std::memory_order_relaxed) == 0;

  // Something waits to run beside an idle processor: a hand-over whose giver did not suspend.
  if (idle && nobody_looks && anything_queued()) {
    wake_processor();
    mended = true;
  }

  // A timer is due, or will be before the next look, and nobody sleeps until then.
  const std::int64_t next = time_sleep_until();
  const bool nobody_polls = poll_until_.load(std::memory_order_relaxed) == 0;
  if (next != 0 && next < now + longest_sleep && nobody_polls) {
    if (idle && nobody_looks) {
      wake_processor();
      mended = true;
    } else if (!idle && next + stuck_after < now && all_stuck()) {
      bring_up_spare();
      mended = true;
    }
  }

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

/// Whether no processor has looked for something to run since the last time this was asked, or for
/// as long as a timer must be late. Called by the monitor alone.
bool live_scheduler::all_stuck() noexcept {
  bool moved = false;
  const unsigned n = slots();
  for (unsigned i = 0; i < n; ++i) {
    const std::uint32_t tick = all_[i]->tick.load(std::memory_order_relaxed);
    moved = moved || tick != monitor_ticks_[i];
    monitor_ticks_[i] = tick;
  }
  return !moved;
}

void live_scheduler::bring_up_spare() noexcept {
  {
    std::lock_guard held(lock_);
    if (spare_active_ || stopping_.load(std::memory_order_relaxed)) return;
    spare_active_ = true;
    for (unsigned i = 0; i < slots(); ++i) {
      ticks_at_spare_[i].store(all_[i]->tick.load(std::memory_order_relaxed),
                               std::memory_order_relaxed);
    }
  }
  stuck_.store(true, std::memory_order_relaxed);
  spare_used_.add();
  start_worker(spare_.get(), false);
}

/// Whether one of those that were stuck when the spare processor came up has moved since.
bool live_scheduler::others_came_back() noexcept {
  if (idle_count_.load(std::memory_order_relaxed) != 0) return true;
  const unsigned n = slots();
  for (unsigned i = 0; i < n; ++i) {
    if (all_[i]->retired.load(std::memory_order_relaxed)) continue;
    if (all_[i]->tick.load(std::memory_order_relaxed) !=
        ticks_at_spare_[i].load(std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

}  // namespace verge::detail
