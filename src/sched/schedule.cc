// What a worker runs next: schedule, and find_runnable when its own queue is empty.

#include <unistd.h>

#include <algorithm>
#include <utility>

#include <base/fence.h>
#include <base/this_thread.h>
#include <clock/true_clock.h>
#include <sched/live_scheduler.h>
#include <sched/living_schedulers.h>
#include <verge/detail/lock.h>

namespace verge::detail {

namespace {

/// After so many in a row from the slot that runs next, the queue has its turn: two tasks that hand
/// over to each other for ever must not starve the others (Go #65178).
constexpr unsigned max_next_streak = 16;
/// With so many in its queue a processor is busy. It looks at its timers only before every 16th
/// task then, and fires no more of them than it has run tasks since: what they make ready goes to
/// the end of the queue, so it comes no later for that, and the queue does not run over.
constexpr std::uint32_t busy_queue = 64;
constexpr std::uint32_t busy_turn = 16;
/// How many timers fire at one look where the queue is shorter. What they make ready is better run
/// while it is in the cache than piled up.
constexpr unsigned most_fired_at_once = 128;
/// A timer that is due sooner than this is waited for awake: to sleep and wake again takes longer.
constexpr std::int64_t worth_a_sleep = 5'000;
/// Before a sleep of this length it pays to see whether it could be longer.
constexpr std::int64_t long_sleep = 100'000'000;
/// How long, in nanoseconds, a processor whose queue is never empty leaves the poller unlooked at:
/// less than a percent of its time goes into looking.
constexpr std::int64_t poll_while_busy = 50'000;
/// What is longer than this is worth a wake-up, in nanoseconds.
constexpr std::int64_t long_run = 50'000;

}  // namespace

void live_scheduler::work(worker& w) noexcept {
  this_thread = {.current = this, .as_worker = &w, .running = nullptr};
  w.thread_id = ::gettid();
  while (w.held != nullptr || acquire_or_park(w)) {
    runnable* r = schedule(w);
    if (r == nullptr) {
      if (stopping_.load(std::memory_order_acquire)) break;
      continue;
    }
    if (w.spinning) stop_spinning(w);
    w.held->tasks_run.add();
    if (is_spare(*w.held)) w.held->thread.store(w.thread_id, std::memory_order_relaxed);
    run(w, *r);
  }
  this_thread = {};
  w.ended.store(true, std::memory_order_release);
}

/// Whoever comes from the poller leaves nobody there. To wake another for it takes longer than most
/// callbacks do, so it is done only if the last one took long, and otherwise left to the monitor.
void live_scheduler::run(worker& w, runnable& r) noexcept {
  const bool nobody_polls = poll_until_.load(std::memory_order_relaxed) == 0 &&
                            idle_count_.load(std::memory_order_relaxed) != 0;
  if (!nobody_polls) return run_ready(r);
  if (w.ran_long) wake_processor();
  const std::int64_t begin = cheap_now();
  run_ready(r);
  w.ran_long = cheap_now() - begin > long_run;
}

runnable* live_scheduler::schedule(worker& w) noexcept {
  processor& p = *w.held;
  const std::uint32_t tick = p.count_look();
  if (stopping_.load(std::memory_order_relaxed)) return nullptr;
  if (is_spare(p)) {
    if (others_came_back(p)) {
      retire(w);
      return nullptr;
    }
    return find_runnable(w);
  }
  if (stuck_.load(std::memory_order_relaxed) != stuckness::none) {
    returns_.fetch_add(1, std::memory_order_relaxed);
    stuck_.store(stuckness::none, std::memory_order_relaxed);
  }
  if (p.retiring.load(std::memory_order_relaxed)) {
    retire(w);
    return nullptr;
  }
  if (std::exchange(p.yielded, false) || tick % global_turn == 0) {
    if (runnable* r = take_from_elsewhere(w)) return r;
  }
  if (left_behind_.load(std::memory_order_relaxed)) {
    left_behind_.store(false, std::memory_order_relaxed);
    run_overdue(p);
    for (unsigned i = 0; i < slots(); ++i) {
      if (&p == all_[i].get()) continue;
      if (runnable* r = p.queue.steal_half(all_[i]->queue, true)) return r;
    }
  }
  if (p.queue.size() < busy_queue || tick % busy_turn == 0) check_timers(p, p.id);
  if (runnable* r = take_local(p)) return r;
  return find_runnable(w);
}

runnable* live_scheduler::find_runnable(worker& w) noexcept {
  for (bool tidied = false;;) {
    processor& p = *w.held;
    if (stopping_.load(std::memory_order_relaxed) || p.retiring.load(std::memory_order_relaxed)) {
      return nullptr;
    }
    const timer_check timers = check_timers(p, p.id);
    if (runnable* r = is_spare(p) ? look_as_spare(p) : look_everywhere(w)) return r;
    if (timers.next != 0 && timers.next - cheap_now() < worth_a_sleep) {
      pause();
      continue;
    }
    // With the processor still held, as the user's destructors may run; and a look after that.
    if (!std::exchange(tidied, true) && forget_stopped_timers()) continue;

    {
      std::lock_guard held(lock_);
      if (stopping_.load(std::memory_order_relaxed)) return nullptr;
      if (p.retiring.load(std::memory_order_relaxed)) return nullptr;
      if (!is_spare(p)) {
        if (runnable* r = pop_global_locked()) return r;
      }
      give_up_locked(w);
    }
    if (w.spinning) {
      w.spinning = false;
      spinning_.fetch_sub(1, std::memory_order_relaxed);
      // The other half of the agreement on lost wake-ups: idle and not spinning first, then look.
      full_fence();
      if (anything_queued()) {
        std::lock_guard held(lock_);
        if (processor* again = take_idle_locked()) {
          w.held = again;
          w.spinning = true;
          spinning_.fetch_add(1, std::memory_order_relaxed);
        }
      }
    }
    if (w.held == nullptr) {
      if (runnable* r = block_in_poller(w)) return r;
      if (w.held == nullptr && !park(w)) return nullptr;
      tidied = false;
      w.held->count_look();
    }
  }
}

/// All that is not the processor's own timers.
runnable* live_scheduler::look_everywhere(worker& w) noexcept {
  processor& p = *w.held;
  if (runnable* r = take_local(p)) return r;
  if (global_size_.load(std::memory_order_relaxed) != 0) {
    if (runnable* r = take_global(p)) return r;
  }
  if (runnable* r = poll_without_blocking(w)) return r;

  // Half as many spinners as busy processors are enough to find what there is.
  const unsigned busy = processors() - idle_count_.load(std::memory_order_relaxed);
  if (!w.spinning && 2 * spinning_.load(std::memory_order_relaxed) >= busy) return nullptr;
  if (!w.spinning) {
    w.spinning = true;
    spinning_.fetch_add(1, std::memory_order_relaxed);
  }
  return steal(w);
}

runnable* live_scheduler::take_local(processor& p) noexcept {
  runnable* next = p.queue.take_next();
  if (next == nullptr) {
    p.next_streak = 0;
    return p.queue.take();
  }
  if (++p.next_streak <= max_next_streak) return next;
  p.next_streak = 0;
  runnable* oldest = p.queue.take();
  if (oldest == nullptr) return next;
  push_local(p, *next);
  return oldest;
}

runnable* live_scheduler::take_global(processor& p) noexcept {
  std::unique_lock held(lock_);
  runnable* first = pop_global_locked();
  if (first == nullptr) return nullptr;
  // A fair share of what is there, to come back for it less often, and no more than fits.
  std::size_t share = (global_.size() + fired_.size()) / processors();
  share = std::min<std::size_t>(share, run_queue::capacity / 2 - p.queue.size() / 2);
  for (; share > 0; --share) {
    runnable* r = pop_global_locked();
    if (!p.queue.push(*r)) {
      global_.push_back(*r);
      break;
    }
  }
  global_size_.store(global_.size() + fired_.size(), std::memory_order_relaxed);
  return first;
}

/// What waits outside of a queue that may never be empty.
runnable* live_scheduler::take_from_elsewhere(worker& w) noexcept {
  if (global_size_.load(std::memory_order_relaxed) != 0) {
    if (runnable* r = take_global(*w.held)) return r;
  }
  if (!poller_.has_sources() ||
      cheap_now() - last_poll_.load(std::memory_order_relaxed) < poll_while_busy) {
    return nullptr;
  }
  return poll_without_blocking(w);
}

runnable* live_scheduler::steal(worker& w) noexcept {
  constexpr int rounds = 4;
  processor& mine = *w.held;
  const unsigned n = slots();
  for (int round = 0; round < rounds; ++round) {
    const bool last = round == rounds - 1;
    const auto start = static_cast<unsigned>(mine.random() % n);
    for (unsigned i = 0; i < n; ++i) {
      const unsigned victim = (start + i) % n;
      if (last && steal_timers(mine, victim)) {
        if (runnable* r = take_local(mine)) return r;
      }
      processor& from = *all_[victim];
      if (&from == &mine) continue;
      if (runnable* r = mine.queue.steal_half(from.queue, last)) return r;
    }
    const unsigned spares = spares_made_.load(std::memory_order_acquire);
    for (unsigned i = 0; i < spares; ++i) {
      if (spares_[i].get() == &mine) continue;
      if (runnable* r = mine.queue.steal_half(spares_[i]->queue, last)) return r;
    }
  }
  return nullptr;
}

/// Runs what is due of another processor's timers. Whether there was anything.
bool live_scheduler::steal_timers(processor& mine, unsigned victim) noexcept {
  if (victim == mine.id || engine_->next_when(victim) == 0) return false;
  const timer_check c = check_timers(mine, victim);
  mine.timers_stolen.add(c.ran);
  return c.ran != 0;
}

/// Runs what is due of everybody else's timers.
void live_scheduler::run_overdue(processor& mine) noexcept {
  const unsigned n = slots();
  for (unsigned victim = 0; victim < n; ++victim) steal_timers(mine, victim);
}

runnable* live_scheduler::poll_without_blocking(worker& w) noexcept {
  if (!poller_.has_sources() || polling_.load(std::memory_order_relaxed)) return nullptr;
  ready_list found = poller_.poll(0);
  last_poll_.store(cheap_now(), std::memory_order_relaxed);
  runnable* first = found.pop_front();
  while (runnable* r = found.pop_front()) push_local(*w.held, *r);
  return first;
}

/// Lest somebody who sleeps until the first timer be woken for one that was stopped. True if there
/// were such.
bool live_scheduler::forget_stopped_timers() noexcept {
  const first_timer next = time_sleep_until();
  if (next.when == 0 || next.when - cheap_now() <= long_sleep) return false;
  worker& w = *this_thread.as_worker;
  w.firing = true;
  const bool any = engine_->tidy_before_sleep(slots());
  w.firing = false;
  return any;
}

/// Sleeps in the poller until something is ready or the earliest timer of all is due, unless
/// somebody else does. Returns with a processor if there was one to be had, and with what the poll
/// found; the rest of that goes to the queues.
runnable* live_scheduler::block_in_poller(worker& w) noexcept {
  if (polling_.exchange(true, std::memory_order_acquire)) return nullptr;
  poll_until_.store(INT64_MAX, std::memory_order_relaxed);
  // Publish first, then look: see the ground rules.
  full_fence();
  const first_timer next = time_sleep_until();
  std::int64_t timeout = -1;
  if (next.when != 0) {
    timeout = next.when - true_now();
    if (timeout < worth_a_sleep) timeout = 0;
    poll_until_.store(next.when, std::memory_order_relaxed);
  }
  ready_list found;
  if (!stopping_.load(std::memory_order_acquire) && timeout != 0) found = poller_.poll(timeout);
  poll_until_.store(0, std::memory_order_relaxed);
  last_poll_.store(cheap_now(), std::memory_order_relaxed);
  polling_.store(false, std::memory_order_release);

  w.held = take_idle_or_spare(next.of);
  if (w.held == nullptr) {
    inject(std::move(found));
    return nullptr;
  }
  w.held->wakeups.add();
  runnable* first = found.pop_front();
  if (first != nullptr) {
    while (runnable* r = found.pop_front()) push_local(*w.held, *r);
    if (!w.held->queue.empty()) wake_processor();
    return first;
  }
  w.spinning = true;
  spinning_.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}

/// Runs what is due of processor p's timers on behalf of `holder`. What they made ready is in the
/// holder's queue then; one the holder can run itself, for more another worker is woken.
timer_check live_scheduler::check_timers(processor& holder, unsigned p) noexcept {
  if (p >= max_processors) return {.now = 0, .next = 0, .ran = 0};  // spare ones have no timers
  worker& w = *this_thread.as_worker;
  w.firing = true;
  const timer_check c = engine_->check_timers(p, 0, p == holder.id);
  w.firing = false;
  if (c.ran != 0 && holder.queue.size() > 1) wake_processor();
  return c;
}

unsigned live_scheduler::firing_room() noexcept {
  const worker* w = this_thread.as_worker;
  if (w == nullptr || w->held == nullptr) return most_fired_at_once;
  return w->held->queue.size() < busy_queue ? most_fired_at_once : busy_turn;
}

bool live_scheduler::anything_queued() const noexcept {
  bool any = global_size_.load(std::memory_order_relaxed) != 0;
  for_each_processor([&](const processor& p) { any = any || !p.queue.empty(); });
  return any;
}

live_scheduler::first_timer live_scheduler::time_sleep_until() const noexcept {
  first_timer first{.when = 0, .of = 0};
  const unsigned n = slots();
  for (unsigned i = 0; i < n; ++i) {
    const std::int64_t when = engine_->next_when(i);
    if (when != 0 && (first.when == 0 || when < first.when)) first = {.when = when, .of = i};
  }
  return first;
}

}  // namespace verge::detail
