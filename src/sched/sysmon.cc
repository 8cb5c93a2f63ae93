// The system monitor: a thread without a processor that mends what nobody else sees.
//
// It looks every 20 us while there is something to mend, backs off to every 10 ms while there is
// not, and sleeps for good once everything has been idle for a while: then it costs nothing, and
// the first processor that is taken wakes it.

#include <algorithm>
#include <new>

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
  const auto [moved, left_behind] = look_at_processors(now);
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

  // A timer is overdue, and who polls would sleep past it.
  if (next != 0 && next < now - stuck_after && !nobody_polls && !somebody_polls_until(next)) {
    poller_.break_poll();
    mended = true;
  }

  // All are busy, and something is not done in time. Those that move do it for the others.
  const bool overdue = next != 0 && next < now - stuck_after && nobody_polls;
  if (!idle && (overdue || left_behind)) {
    if (moved) {
      left_behind_.store(true, std::memory_order_relaxed);
    } else {
      bring_up_spare();
    }
    mended = true;
  }

  // What an engine's own thread has fired waits, and nobody comes to run it.
  const std::int64_t fired = fired_since_.load(std::memory_order_relaxed);
  if (fired != 0 && !idle && !moved && fired < now - stuck_after) {
    bring_up_spare();
    mended = true;
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

live_scheduler::processor_look live_scheduler::look_at_processors(std::int64_t now) noexcept {
  processor_look look{.moved = false, .left_behind = false};
  for_each_processor([&](const processor& p) {
    const std::uint32_t tick = p.tick.load(std::memory_order_relaxed);
    const bool moved = tick != monitor_ticks_[p.id];
    monitor_ticks_[p.id] = tick;
    if (moved || p.queue.empty()) well_at_[p.id] = now;
    look.moved = look.moved || moved;
    look.left_behind = look.left_behind || well_at_[p.id] + stuck_after < now;
  });
  return look;
}

/// A spare processor that rests, or a new one; nullptr if all there may be are in use.
processor* live_scheduler::take_spare_locked() noexcept {
  processor* p = nullptr;
  const unsigned made = spares_made_.load(std::memory_order_relaxed);
  if (spares_at_rest_.any()) {
    const std::size_t i = spares_at_rest_._Find_first();
    spares_at_rest_.reset(i);
    p = spares_[i].get();
  } else if (made < max_spares) {
    try {
      spares_[made] = std::make_unique<processor>(max_processors + made, 0x9e3779b97f4a7c15 + made);
    } catch (const std::bad_alloc&) {
      return nullptr;  // the monitor asks again
    }
    spares_made_.store(made + 1, std::memory_order_release);
    p = spares_[made].get();
  }
  if (p != nullptr) p->returns_seen = returns_.load(std::memory_order_relaxed);
  return p;
}

void live_scheduler::bring_up_spare() noexcept {
  stuck_.store(true, std::memory_order_relaxed);
  processor* p = nullptr;
  {
    std::lock_guard held(lock_);
    if (stopping_.load(std::memory_order_relaxed)) return;
    p = take_spare_locked();
  }
  if (p == nullptr) return;
  spare_used_.add();
  start_worker(p, false);
}

/// Whether one of those that were stuck when the spare processor came up has moved since.
bool live_scheduler::others_came_back(const processor& spare) noexcept {
  return idle_count_.load(std::memory_order_relaxed) != 0 ||
         returns_.load(std::memory_order_relaxed) != spare.returns_seen;
}

}  // namespace verge::detail
