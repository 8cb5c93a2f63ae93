// SPDX-License-Identifier: Apache-2.0

// What a worker runs next: schedule, and find_runnable when its own queue is empty.

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <base/fence.h>
#include <base/probes.h>
#include <base/this_thread.h>
#include <clock/true_clock.h>
#include <sched/live_scheduler.h>
#include <sched/living_schedulers.h>
#include <verge/detail/lock.h>

namespace verge::detail {

namespace {

/// After this many in a row from the slot that runs next, the queue has its turn: two tasks that
/// hand over to each other forever must not starve the others (Go #65178).
constexpr unsigned max_next_streak = 16;
/// With this many in its queue a processor is busy. Then it checks its timers only before every
/// 16th task, and fires no more of them than it has run tasks since: what they make ready is put at
/// the end of the queue, so it runs no later for that, and the queue does not overflow.
constexpr std::uint32_t busy_queue = 64;
constexpr std::uint32_t busy_turn = 16;
/// How many timers one check fires if the queue is shorter. What they make ready should run while
/// it is in the cache.
constexpr unsigned most_fired_at_once = 128;
/// A worker spins until a timer that is due sooner than this: to sleep and wake again takes longer.
constexpr std::int64_t worth_a_sleep = 5'000;
/// The last part of that, in which there is no time for another look at the queues.
constexpr std::int64_t worth_a_look = 1'500;
/// How many pauses a worker watches another that has timers which are due: about 2 us.
constexpr int pauses_for_a_look = 80;
/// After this time it looks again, in nanoseconds, if it has left them to that one; and after twice
/// as long each time that it finds that one still at them.
constexpr std::int64_t look_again = 50'000;
constexpr std::int64_t longest_look_again = 400'000;
/// Before a sleep of this length it pays to look at all timers whether it could be longer.
constexpr std::int64_t long_sleep = 100'000'000;
/// And before a shorter one, at the first ones of so many nanoseconds: a wake-up for nothing takes
/// as long as to look at a hundred.
constexpr std::int64_t short_sleep = 4'000'000;
/// How often, in nanoseconds, a processor whose queue is never empty looks at the poller: that
/// takes less than a percent of its time.
constexpr std::int64_t poll_while_busy = 50'000;
/// While a processor is busy one in so many turns is measured, for the figures. Prime, so as not to
/// beat with patterns in what the tasks do.
constexpr std::uint64_t turns_per_sample = 17;
/// A task that runs for longer than this, in nanoseconds, is worth a wake-up.
constexpr std::int64_t long_run = 50'000;

}  // namespace

void live_scheduler::work(worker& w) noexcept {
  this_thread = {.current = this, .as_worker = &w, .running = nullptr};
  w.thread_id.store(::gettid(), std::memory_order_relaxed);
  woke(w, cheap_now());
  while (w.held != nullptr || acquire_or_park(w)) {
    runnable* r = schedule(w);
    if (r == nullptr) {
      if (stopping_.load(std::memory_order_acquire)) break;
      continue;
    }
    if (w.spinning) {
      w.look_again = look_again;
      stop_spinning(w);
    }
    if (realtime_.wanted()) [[unlikely]]
      realtime_.begin(w.priority, cheap_now());
    w.held->tasks_run.add();
    if (is_spare(*w.held))
      w.held->thread.store(w.thread_id.load(std::memory_order_relaxed), std::memory_order_relaxed);
    w.begin_turn();
    run(w, *r);
    w.end_turn();
  }
  this_thread = {};
  w.ended.store(true, std::memory_order_release);
}

/// When a worker returns from the poller, no other worker polls. To wake one for that takes longer
/// than most callbacks do, so it is done only if the last one was slow, and is otherwise left to
/// the monitor.
void live_scheduler::run(worker& w, runnable& r) noexcept {
  const bool poller_is_left = poll_.no_worker_sleeps() && idle_.any();
  const bool measured = (counting && w.held->tasks_run.read() % turns_per_sample == 0) ||
                        w.held->traced.load(std::memory_order_relaxed) != nullptr;
  if (!poller_is_left && !measured) return run_ready(r);
  if (poller_is_left && w.ran_long) wake_processor();
  const std::int64_t took = run_measured(w, r, poller_is_left ? 1 : turns_per_sample);
  if (poller_is_left) w.ran_long = took > long_run;
}

runnable* live_scheduler::schedule(worker& w) noexcept {
  processor& p = *w.held;
  const std::uint32_t tick = p.count_look();
  if (stopping_.load(std::memory_order_relaxed)) return nullptr;
  if (is_spare(p)) {
    if (others_came_back(p)) {
      give_up_with_queue(w);
      return nullptr;
    }
    return find_runnable(w);
  }
  spares_.came_back();
  if (p.retiring.load(std::memory_order_relaxed)) {
    give_up_with_queue(w);
    return nullptr;
  }
  if (std::exchange(p.yielded, false) || tick % global_turn == 0) {
    if (runnable* r = take_from_elsewhere(w)) return r;
  }
  if (spares_.answer_left_behind()) {
    if (runnable* r = take_left_behind(p)) return r;
  }
  if (looks_at_timers(p)) check_timers(p, p.id);
  if (runnable* r = take_local(p)) return r;
  return find_runnable(w);
}

/// Whether a processor checks timers before its next task.
bool live_scheduler::looks_at_timers(const processor& p) noexcept {
  if (p.queue.size() < busy_queue) return true;
  return p.tick.load(std::memory_order_relaxed) % busy_turn == 0 &&
         !p.brief.load(std::memory_order_relaxed);
}

runnable* live_scheduler::find_runnable(worker& w) noexcept {
  for (bool tidied = false;;) {
    processor& p = *w.held;
    if (stopping_.load(std::memory_order_relaxed) || p.retiring.load(std::memory_order_relaxed)) {
      return nullptr;
    }
    const timer_check timers = check_timers(p, p.id);
    if (runnable* r = is_spare(p) ? look_as_spare(p) : look_everywhere(w)) return r;
    if (stays_awake(p.id, timers.next)) {
      pause();
      continue;
    }
    p.awake_since = 0;
    // While the processor is still held, as user destructors may run. Then looks again.
    if (!std::exchange(tidied, true) && forget_stopped_timers()) continue;

    {
      std::lock_guard held(lock_);
      if (stopping_.load(std::memory_order_relaxed)) return nullptr;
      if (p.retiring.load(std::memory_order_relaxed)) return nullptr;
      if (!is_spare(p)) {
        if (runnable* r = global_.pop_locked()) return r;
      }
      give_up_locked(w);
    }
    if (w.spinning) stop_spinning_without_work(w);
    if (w.held == nullptr) {
      if (runnable* r = block_in_poller(w)) return r;
      if (w.held == nullptr && !park(w)) return nullptr;
      tidied = false;
      w.held->count_look();
    }
  }
}

/// Whether a timer of processor p, which is due next, is so close that its holder does not sleep. A
/// precise one has come up earlier than it is due: nothing is left but to wait for it, and to do
/// meanwhile what else there is.
bool live_scheduler::stays_awake(unsigned p, std::int64_t next) noexcept {
  if (next == 0 || p >= max_processors) return false;
  const std::int64_t now = cheap_now();
  const std::int64_t left = next - now;
  if (left < worth_a_look) {
    while (true_now() < next) pause();
    return true;
  }
  if (left < worth_a_sleep) return true;
  if (left > wake_up_lag::most || engine_->awake_until(p) < next) return false;
  processor& mine = all_[p];
  if (mine.awake_since != 0)
    mine.waited_awake.add(static_cast<std::uint64_t>(now - mine.awake_since));
  mine.awake_since = now;
  return true;
}

/// A worker that slept until a timer woke so much later.
void live_scheduler::learn_from_sleep(std::int64_t late) noexcept {
  if (late > 0) lag_.record(late);
  const std::int64_t lead = lead_.load(std::memory_order_relaxed);
  if (std::abs(lag_.estimate() - lead) <= lead / 16) return;
  lead_.store(lag_.estimate(), std::memory_order_relaxed);
  engine_->come_up_early(lag_.estimate());
}

/// The other half of the agreement on lost wake-ups: idle and not spinning first, then look. If
/// there is something, the worker spins again with whichever processor is idle.
void live_scheduler::stop_spinning_without_work(worker& w) noexcept {
  idle_.stop_spinning(w);
  full_fence();
  if (!anything_queued(w.leaves_timers ? w.watched : nullptr)) return;
  const taking_lock held(*this);
  w.held = take_idle_locked();
  if (w.held != nullptr) idle_.start_spinning(w);
}

/// Looks everywhere but at the processor's own timers.
runnable* live_scheduler::look_everywhere(worker& w) noexcept {
  processor& p = *w.held;
  if (runnable* r = take_local(p)) return r;
  if (runnable* r = take_global(p)) return r;
  if (runnable* r = poll_without_blocking(w)) return r;

  // Half as many spinning workers as busy processors are enough to find what there is.
  const unsigned busy = processors() - idle_.count();
  if (!w.spinning && 2 * idle_.spinning() >= busy) return nullptr;
  if (!w.spinning) idle_.start_spinning(w);
  return steal(w);
}

runnable* live_scheduler::take_local(processor& p) noexcept {
  runnable* next = p.queue.take_next();
  if (next == nullptr) {
    p.next_streak = 0;
    return take_from_queue(p);
  }
  if (++p.next_streak <= max_next_streak) return next;
  p.next_streak = 0;
  runnable* oldest = take_from_queue(p);
  if (oldest == nullptr) return next;
  push_local(p, *next);
  return oldest;
}

/// Takes the oldest, and if it is the one that is watched, records how long it has waited. One that
/// was stolen, or spilled, is not watched any more when a later one is taken.
runnable* live_scheduler::take_from_queue(processor& p) noexcept {
  std::uint32_t place = 0;
  runnable* const r = p.queue.take(place);
  if (p.watched_since == 0 || r == nullptr) return r;
  const auto past = static_cast<std::int32_t>(place - p.watched_place);
  if (past < 0) return r;
  if (past == 0) p.ready_waits.record(cheap_now() - p.watched_since);
  p.watched_since = 0;
  return r;
}

runnable* live_scheduler::take_global(processor& p) noexcept {
  if (global_.empty()) return nullptr;
  std::lock_guard held(lock_);
  runnable* const r = global_.take_share_locked(p.queue, processors());
  if (const std::int64_t since = global_.taken_since_locked(); since != 0) {
    p.ready_waits.record(cheap_now() - since);
  }
  return r;
}

/// What waits outside of the processor's own queue, which may never be empty.
runnable* live_scheduler::take_from_elsewhere(worker& w) noexcept {
  if (runnable* r = take_global(*w.held)) return r;
  if (!poller_.has_sources() || cheap_now() - poll_.last_look() < poll_while_busy) return nullptr;
  return poll_without_blocking(w);
}

/// What the monitor has reported: overdue timers and queues of processors that do not come round.
runnable* live_scheduler::take_left_behind(processor& p) noexcept {
  run_overdue(p);
  for (unsigned i = 0; i < all_.made(); ++i) {
    if (&p == &all_[i]) continue;
    if (runnable* r = p.queue.steal_half(all_[i].queue, true)) return r;
  }
  return nullptr;
}

runnable* live_scheduler::steal(worker& w) noexcept {
  constexpr int rounds = 4;
  processor& mine = *w.held;
  const unsigned n = all_.made();
  w.leaves_timers = false;
  for (int round = 0; round < rounds; ++round) {
    const bool last = round == rounds - 1;
    const auto start = static_cast<unsigned>(mine.random.next() % n);
    for (unsigned i = 0; i < n; ++i) {
      const unsigned victim = (start + i) % n;
      if (last && steal_timers(mine, victim)) {
        if (runnable* r = take_local(mine)) return r;
      }
      processor& from = all_[victim];
      if (&from == &mine || leaves_queue(victim)) continue;
      if (runnable* r = mine.queue.steal_half(from.queue, last)) {
        mine.tasks_stolen.add();
        VERGE_PROBE2(steal, mine.id, victim);
        return r;
      }
    }
    const unsigned spares = all_.spares_made();
    for (unsigned i = 0; i < spares; ++i) {
      if (&all_.spare(i) == &mine) continue;
      if (runnable* r = mine.queue.steal_half(all_.spare(i).queue, last)) return r;
    }
  }
  return nullptr;
}

/// Fires the timers of another processor that are due. True if there were any.
bool live_scheduler::steal_timers(processor& mine, unsigned victim) noexcept {
  if (victim == mine.id) return false;
  const std::int64_t next = engine_->next_when(victim);
  if (next == 0 || next > cheap_now()) return false;
  if (looks_after_timers(victim)) return false;
  const timer_check c = check_timers(mine, victim);
  mine.timers_stolen.add(c.ran);
  if (c.ran != 0) VERGE_PROBE2(steal, mine.id, victim);
  return c.ran != 0;
}

/// Whether the timers of a processor, some of which are due, can be left to the worker that holds
/// it, because that one is at them, or comes to look at them about now. Two workers that fire the
/// same timers take longer than one if the callbacks are short: they wait for each other's locks
/// and cache lines. If the callbacks are long, what has fired is stolen from the run queue.
///
/// A worker that has nothing to run watches the holder for a while, unless it has watched it before
/// and the holder has not looked since. One that is busy leaves the timers to a holder that fires
/// timers just now; the monitor sees if that does not end.
bool live_scheduler::looks_after_timers(unsigned p) noexcept {
  const processor& it = all_[p];
  worker& w = *this_thread.as_worker;
  if (!w.spinning) return it.firing.load(std::memory_order_relaxed);
  if (w.leaves_timers && w.watched == &it) return true;  // seen a moment ago
  const std::uint32_t tick = it.tick.load(std::memory_order_relaxed);
  if (w.watched == &it && w.watched_at == tick) return false;
  bool looks = it.firing.load(std::memory_order_relaxed);
  for (int i = 0; i < pauses_for_a_look && !looks; ++i) {
    pause();
    looks = it.tick.load(std::memory_order_relaxed) != tick;
  }
  w.watched = &it;
  w.watched_at = it.tick.load(std::memory_order_relaxed);
  w.leaves_timers = w.leaves_timers || looks;
  return looks;
}

/// Whether what is queued on a processor can be left to the worker that holds it, because that one
/// fires many timers whose callbacks are short: to take one to another core, with its cache line,
/// takes longer than to run it. If one of them is long after all, this worker looks again soon, or
/// the one in the poller does.
bool live_scheduler::leaves_queue(unsigned p) noexcept {
  if (!all_[p].brief.load(std::memory_order_relaxed)) return false;
  const bool looks_again = !poll_.taken() || poll_.ends_by(cheap_now() + longest_look_again);
  return looks_again && looks_after_timers(p);
}

/// Fires the timers of all other processors that are due.
void live_scheduler::run_overdue(processor& mine) noexcept {
  const unsigned n = all_.made();
  for (unsigned victim = 0; victim < n; ++victim) steal_timers(mine, victim);
}

runnable* live_scheduler::poll_without_blocking(worker& w) noexcept {
  if (!poller_.has_sources() || poll_.taken()) return nullptr;
  ready_list found = poller_.poll(0);
  poll_.looked(cheap_now());
  runnable* first = found.pop_front();
  push_local(*w.held, found);
  return first;
}

/// Removes stopped timers, so that no worker sleeps until one of them only. True if that has made
/// something ready, or might have.
bool live_scheduler::forget_stopped_timers() noexcept {
  const first_timer next = time_sleep_until();
  const std::int64_t now = cheap_now();
  const std::int64_t left = next.when - now;
  if (next.when == 0 || left <= 0 || (left > short_sleep && left <= long_sleep)) return false;
  processor& held = *this_thread.as_worker->held;
  held.firing.store(true, std::memory_order_relaxed);
  bool again = false;
  if (left > long_sleep) {
    again = engine_->tidy_before_sleep(all_.made());
  } else {
    engine_->look_ahead(next.of, now + short_sleep);
    again = !held.queue.empty();
  }
  held.firing.store(false, std::memory_order_relaxed);
  return again;
}

/// Sleeps in the poller until something is ready or the earliest timer of all is due, unless
/// another worker does. Then takes a processor if one is idle, and returns the first that the poll
/// found; the rest is put on the queues.
runnable* live_scheduler::block_in_poller(worker& w) noexcept {
  if (!poll_.try_begin()) return nullptr;
  const processor* left = w.leaves_timers ? w.watched : nullptr;
  const first_timer next = time_sleep_until(left, cheap_now() + w.look_again);
  if (left != nullptr) w.look_again = std::min(2 * w.look_again, longest_look_again);
  std::int64_t timeout = -1;
  if (next.when != 0) {
    timeout = next.when - true_now();
    const bool precise = timeout <= wake_up_lag::most && engine_->awake_until(next.of) >= next.when;
    if (timeout < worth_a_sleep || precise) timeout = 0;
    poll_.sleeps_until(next.when);
  }
  ready_list found;
  if (!stopping_.load(std::memory_order_acquire) && timeout != 0) {
    realtime_.raise(w.priority);
    w.priority.since.store(0, std::memory_order_relaxed);
    VERGE_PROBE1(sleep, next.when);
    found = poller_.poll(timeout);
  }
  const std::int64_t now = cheap_now();
  // If it was not woken by something else.
  if (timeout > 0 && now >= next.when && found.empty() && !w.leaves_timers) {
    learn_from_sleep(now - next.when);
  }
  poll_.end(now);
  woke(w, now);

  monitor_.call_if_asleep();  // before the processor is taken, which it is to watch
  w.held = take_idle_or_spare(next.of);
  if (w.held == nullptr) {
    inject(std::move(found));
    return nullptr;
  }
  w.held->wakeups.add();
  runnable* first = found.pop_front();
  if (first != nullptr) {
    push_local(*w.held, found);
    if (!w.held->queue.empty()) wake_processor();
    return first;
  }
  idle_.start_spinning(w);
  return nullptr;
}

/// Fires the timers of processor p that are due, on behalf of `holder`. What they make ready is put
/// on the holder's queue; the holder runs the first itself, and wakes another worker for more.
timer_check live_scheduler::check_timers(processor& holder, unsigned p) noexcept {
  holder.firing.store(true, std::memory_order_relaxed);
  // A spare processor has no timers. One object and one return: it is made where the caller wants
  // it, as to copy what was just written in pieces stalls the processor in every turn of a task.
  timer_check c = p < max_processors ? engine_->check_timers(p, 0, p == holder.id)
                                     : timer_check{.now = 0, .next = 0, .ran = 0};
  holder.firing.store(false, std::memory_order_relaxed);
  const bool brief = c.ran != 0 && all_brief(holder, c);
  if (holder.brief.load(std::memory_order_relaxed) != brief) {
    holder.brief.store(brief, std::memory_order_relaxed);
  }
  // If one of them is long after all, a worker that sleeps in the poller looks soon.
  const bool helped = brief && poll_.ends_by(c.now + longest_look_again);
  if (c.ran != 0 && holder.queue.size() > 1 && !helped) wake_processor();
  return c;
}

/// Timers have fired. Whether more are due, and the callbacks of those before them were so short
/// that what is queued now will have run before another worker could help.
bool live_scheduler::all_brief(processor& holder, const timer_check& c) noexcept {
  const std::int64_t before = std::exchange(holder.fired_at, c.now);
  const bool more = c.next != 0 && c.next <= c.now;
  return more && c.now - before < look_again;
}

unsigned live_scheduler::firing_room() noexcept {
  const worker* w = this_thread.as_worker;
  if (w == nullptr || w->held == nullptr) return most_fired_at_once;
  return w->held->queue.size() < busy_queue ? most_fired_at_once : busy_turn;
}

/// Whether anything is, but for the queue of a processor that the caller leaves to its holder.
bool live_scheduler::anything_queued(const processor* left) const noexcept {
  bool any = !global_.empty();
  all_.for_each([&](const processor& p) { any = any || (&p != left && !p.queue.empty()); });
  return any;
}

/// The earliest timer of all. If the caller leaves those of processor `left` to its holder, that
/// one's count as one that is due at `look_at`.
live_scheduler::first_timer live_scheduler::time_sleep_until(const processor* left,
                                                             std::int64_t look_at) const noexcept {
  first_timer first{.when = 0, .of = 0};
  if (left != nullptr) first = {.when = look_at, .of = left->id};
  const unsigned n = all_.made();
  for (unsigned i = 0; i < n; ++i) {
    if (left == &all_[i]) continue;
    const std::int64_t when = engine_->next_when(i);
    if (when != 0 && (first.when == 0 || when < first.when)) first = {.when = when, .of = i};
  }
  return first;
}

}  // namespace verge::detail
