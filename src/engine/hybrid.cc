// SPDX-License-Identifier: Apache-2.0

#include <engine/hybrid.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include <base/yield_or_sleep.h>
#include <node/node_store.h>

namespace verge::detail {

namespace {

/// How many timers are taken out under one lock at most.
constexpr std::size_t batch_size = 32;
/// How many chunks one check moves down at most, and how many of them under one lock: a few
/// microseconds.
constexpr unsigned step_limit = 32;
constexpr unsigned steps_per_hold = 4;

/// Sweeping: see hybrid.h.
constexpr std::uint64_t left_per_piece = 16;
constexpr unsigned chunks_per_piece = 4;
constexpr std::int64_t stale_constant = 1024;
/// This many are swept in one go by a worker that is about to sleep: about 50 us.
constexpr std::int64_t swept_at_once = 4096;

constexpr std::size_t entries_per_move = 4096;

/// The greater of the two, which `most` is from then on.
std::uint64_t raise_to(std::atomic<std::uint64_t>& most, std::uint64_t value) noexcept {
  std::uint64_t before = most.load(std::memory_order_relaxed);
  while (before < value && !most.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
  }
  return std::max(before, value);
}

}  // namespace

void hybrid::policy::yield() noexcept { yield_or_sleep(); }

bool hybrid::policy::sleeps_past(const hybrid_timers<policy>& ts, std::int64_t when) noexcept {
  return static_cast<const timers&>(ts).engine.host_.sleeps_past(when);
}

void hybrid::policy::wake_net_poller(hybrid_timers<policy>& ts, std::int64_t when) noexcept {
  static_cast<timers&>(ts).engine.host_.wake_net_poller(when);
}

void hybrid::policy::release_locked(hybrid_timers<policy>& ts, node& t) noexcept {
  if (t.refs.fetch_sub(1, std::memory_order_acq_rel) == 1) static_cast<timers&>(ts).dead.add(t);
}

/// The timers that are to take a new entry of the calling thread's.
hybrid::timers& hybrid::place_for_entry() noexcept {
  timers& mine = home();
  if (!mine.lock.taken()) [[likely]]
    return mine;
  for (const auto& ts : all()) {
    if (!ts->lock.taken()) return *ts;
  }
  return mine;
}

/// The caller has taken the reference for being armed.
void hybrid::start_with_entry(timer_node& t, std::int64_t when, std::int64_t period) {
  try {
    place_for_entry().start(static_cast<node&>(t), when, period);
  } catch (...) {
    t.refs.fetch_sub(1, std::memory_order_relaxed);
    throw;
  }
  count_armed();
}

bool hybrid::complete_reset(node& t, std::int64_t when, std::int64_t period,
                            timers::change so_far) {
  const bool was_armed = place_for_entry().finish_reset(so_far, t, when, period);
  if (was_armed) {
    // Threads without a slot may miss a count of one another's.
    tally& mine = tallies_[thread_slot()];
    mine.reset.store(mine.reset.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    mine.moved.store(mine.moved.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    count_and_look(-tally::one_left);
  } else {
    count_armed();
  }
  return was_armed;
}

timer_check hybrid::check_timers(unsigned p, std::int64_t now, bool /*own*/) noexcept {
  timers& ts = *timers_[p];
  const std::int64_t next = ts.next.load(std::memory_order_relaxed);
  if (!is_due(host_, next, now)) return {.now = now, .next = next, .ran = 0};
  return run_due(ts, now);
}

timer_check hybrid::run_due(timers& ts, std::int64_t now) noexcept {
  unsigned ran = 0;
  unsigned steps = step_limit;
  engine_host::firing batch[batch_size];
  const unsigned room = host_.firing_room();
  while (ran < room && steps != 0) {
    const std::size_t most = std::min<std::size_t>(batch_size, room - ran);
    unsigned left = std::min(steps, steps_per_hold);
    steps -= left;
    std::size_t n = 0;
    bool earlier = false;
    {
      std::lock_guard held(ts.lock);
      n = ts.collect(now, batch, most, left);
      earlier = ts.comes_earlier();
    }
    if (earlier) [[unlikely]]
      host_.wake_net_poller(ts.next.load(std::memory_order_relaxed));
    steps += left;
    if (n != 0) host_.fire_all({batch, n}, now);
    ran += static_cast<unsigned>(n);
    if (n < most && left != 0) break;  // nothing more is due
    ts.lock.let_others_in();
  }
  ts.dead.bury();
  return {.now = now, .next = ts.next.load(std::memory_order_relaxed), .ran = ran};
}

std::int64_t hybrid::next_when(unsigned p) const noexcept {
  return timers_[p]->next.load(std::memory_order_relaxed);
}

void hybrid::come_up_early(std::int64_t ns) noexcept {
  early_.store(ns, std::memory_order_relaxed);
  for (const auto& ts : all()) {
    ts->early.store(static_cast<std::uint64_t>(ns), std::memory_order_relaxed);
  }
}

std::int64_t hybrid::awake_until(unsigned p) const noexcept {
  return static_cast<std::int64_t>(timers_[p]->awake_until.load(std::memory_order_relaxed));
}

std::int64_t hybrid::next_exactly(unsigned p) noexcept {
  timers& ts = *timers_[p];
  std::int64_t next = 0;
  {
    std::lock_guard held(ts.lock);
    next = ts.next_exactly();
  }
  ts.dead.bury();
  return next;
}

void hybrid::grow(unsigned n) {
  for (unsigned i = made_.load(std::memory_order_relaxed); i < n; ++i) {
    timers_[i] = std::make_unique<timers>(*this, host_.now());
    timers_[i]->early.store(static_cast<std::uint64_t>(early_.load(std::memory_order_relaxed)),
                            std::memory_order_relaxed);
    made_.store(i + 1, std::memory_order_release);
  }
}

void hybrid::move_timers(unsigned from, unsigned to) noexcept {
  timers& source = *timers_[from];
  timers& target = *timers_[to];
  if (&source == &target) return;
  // A piece at a time: others can use both in between. If there is no memory the rest stays where
  // it is: thieves look at the timers of retired processors, too.
  for (bool moved = true; moved && source.entries.load(std::memory_order_relaxed) != 0;) {
    std::scoped_lock both(&source < &target ? source.lock : target.lock,
                          &source < &target ? target.lock : source.lock);
    moved = source.give(target, entries_per_move);
  }
  if (const std::int64_t next = target.next.load(std::memory_order_relaxed); next != 0) {
    host_.wake_net_poller(next);
  }
}

void hybrid::drain() noexcept {
  drained_.store(true, std::memory_order_relaxed);
  for (const auto& ts : all()) {
    std::size_t n = 0;
    {
      std::lock_guard held(ts->lock);
      n = ts->drain();
    }
    tallies_[thread_slot_count].both.fetch_sub(n * tally::one_armed, std::memory_order_relaxed);
    ts->dead.bury();
  }
}

void hybrid::count_and_look(std::uint64_t change) noexcept {
  const std::uint32_t slot = take_thread_slot();
  if (slot < thread_slot_count) [[likely]] {
    if (tally::until_look(count(slot, change)) == 0) keep_tidy(tallies_[slot]);
    return;
  }
  tally& shared = tallies_[thread_slot_count];
  const std::uint64_t sum = shared.both.fetch_add(change, std::memory_order_relaxed) + change;
  if (tally::until_look(sum) == 0) keep_tidy(shared);
}

std::int64_t hybrid::live() const noexcept {
  std::uint64_t sum = tallies_[thread_slot_count].both.load(std::memory_order_relaxed) >> 32;
  const std::uint32_t slots = thread_slots_used();
  for (std::uint32_t i = 0; i < slots && i < thread_slot_count; ++i) {
    sum += tallies_[i].both.load(std::memory_order_relaxed) >> 32;
  }
  for (const auto& ts : all()) sum -= ts->fired.load(std::memory_order_relaxed);
  // A pool has fewer than 2^31 nodes, so the last 32 bits say all.
  return std::max(static_cast<std::int32_t>(sum), 0);
}

std::int64_t hybrid::entries() const noexcept {
  std::size_t sum = 0;
  for (const auto& ts : all()) {
    sum += ts->entries.load(std::memory_order_relaxed);
  }
  return static_cast<std::int64_t>(sum);
}

/// The tally is down to zero, and the thread that took it there raises it again.
void hybrid::keep_tidy(tally& mine) noexcept {
  const bool under_way = sweep_or_begin();
  const std::uint32_t threads = std::min(thread_slots_used(), thread_slot_count);
  const std::uint64_t more =
      under_way ? left_per_piece : stops_per_look(threads, made_.load(std::memory_order_relaxed));
  mine.both.fetch_add(more, std::memory_order_relaxed);
  // Release, and after: a thread that sees this sees that the other was raised (totals()).
  mine.raised.fetch_add(more, std::memory_order_release);
}

/// Does a piece of the pass that is under way, or looks whether one should begin. False if not.
bool hybrid::sweep_or_begin() noexcept {
  if (drained_.load(std::memory_order_relaxed)) return false;  // the host may have ended
  std::uint64_t pass = pass_.load(std::memory_order_relaxed);
  const unsigned mine = host_.home_processor();
  if (sweep_piece(*timers_[mine], pass)) return true;
  for (const auto& ts : all()) {
    if (sweep_piece(*ts, pass)) return true;
  }
  const std::int64_t alive = live();
  if (entries() - alive <= alive / 4 * 3 + stale_constant) return false;
  if (pass_.compare_exchange_strong(pass, pass + 1, std::memory_order_relaxed)) {
    sweep_piece(*timers_[mine], pass + 1);
  }
  return true;
}

bool hybrid::tidy_before_sleep(unsigned n) noexcept {
  const std::int64_t known = entries();
  if (known == 0 || known > swept_at_once || known <= 2 * live()) return false;
  for (const auto& ts : all().first(n)) {
    std::lock_guard held(ts->lock);
    // The first time round may be the end of a pass that is under way.
    for (int pass = 0; pass < 2; ++pass) {
      while (!ts->sweep(chunks_per_piece)) {
      }
    }
  }
  return true;
}

void hybrid::look_ahead(unsigned p, std::int64_t until) noexcept {
  timers& ts = *timers_[p];
  for (unsigned steps = step_limit; steps != 0; steps -= steps_per_hold) {
    // The thread that has it may have lost its core: to sleep must not wait for that.
    if (!ts.lock.try_lock()) break;
    unsigned left = steps_per_hold;
    bool earlier = false;
    {
      std::lock_guard held(ts.lock, std::adopt_lock);
      ts.look_ahead(until, left);
      earlier = ts.comes_earlier();
    }
    if (earlier) [[unlikely]]
      host_.wake_net_poller(ts.next.load(std::memory_order_relaxed));
    if (left != 0) break;
    ts.lock.let_others_in();
  }
  ts.dead.bury();
}

/// False if this wheel has had that pass already.
bool hybrid::sweep_piece(timers& ts, std::uint64_t pass) noexcept {
  if (ts.swept.load(std::memory_order_relaxed) >= pass) return false;
  // The thread that has the lock operates on timers itself.
  if (!ts.lock.try_lock()) return true;
  std::lock_guard held(ts.lock, std::adopt_lock);
  if (ts.swept.load(std::memory_order_relaxed) >= pass) return false;
  if (ts.sweep(chunks_per_piece)) ts.swept.store(pass, std::memory_order_relaxed);
  return true;
}

/// How many of a wheel's entries are live is not counted, only how many are in all: they are
/// distributed over the wheels in proportion to their entries, so that the sum is right.
timer_counts hybrid::counts(unsigned p) const noexcept {
  if (p >= all().size()) return {};
  const auto all = static_cast<std::uint64_t>(std::max<std::int64_t>(entries(), 0));
  if (all == 0) return {};
  const auto alive = std::min(static_cast<std::uint64_t>(live()), all);
  std::uint64_t before = 0;
  for (unsigned i = 0; i < p; ++i) before += timers_[i]->entries.load(std::memory_order_relaxed);
  const std::uint64_t here = timers_[p]->entries.load(std::memory_order_relaxed);
  const auto share = [&](std::uint64_t n) {
    return static_cast<std::uint64_t>(static_cast<long double>(n) * alive / all);
  };
  const std::uint64_t mine = std::min(share(before + here) - share(before), here);
  return {.live = mine, .deleted = here - mine};
}

bool hybrid::shape(unsigned p, wheel_view& out) const noexcept {
  if (p >= all().size()) return false;
  timers& ts = *timers_[p];
  std::lock_guard held(ts.lock);
  const auto& wheel = ts.wheel();
  for (int level = 0; level < wheel_view::levels; ++level) out.used[level] = wheel.used(level);
  out.near = wheel.near_size();
  out.entries = wheel.size();
  return true;
}

/// Every entry that was left is one less in the low half of a tally, which is raised by known
/// amounts: so the sum of what it was raised by, less what it is now, is how many were left. Read
/// in this order a count that is under way is missing, and none is counted twice.
timer_totals hybrid::totals() const noexcept {
  timer_totals all;
  const std::uint32_t slots = std::min(thread_slots_used(), thread_slot_count);
  for (std::uint32_t i = 0; i <= slots; ++i) {
    const tally& of = tallies_[i < slots ? i : thread_slot_count];
    const std::uint64_t raised = of.raised.load(std::memory_order_acquire);
    const std::uint32_t left = tally::until_look(of.both.load(std::memory_order_acquire));
    const std::uint64_t others = left + of.moved.load(std::memory_order_relaxed);
    if (raised > others) all.stopped += raised - others;
    all.reset += of.reset.load(std::memory_order_relaxed);
  }
  all.stopped = raise_to(stopped_seen_, all.stopped);
  std::uint64_t fired = 0;
  for (const auto& ts : this->all()) fired += ts->fired.load(std::memory_order_relaxed);
  // What was drained counts as stopped, and is neither pending nor fired.
  all.started = raise_to(started_seen_, all.stopped + fired + static_cast<std::uint64_t>(live()));
  return all;
}

std::size_t hybrid::bytes() const noexcept {
  std::size_t sum = sizeof(hybrid);
  for (const auto& ts : all()) {
    std::lock_guard held(ts->lock);
    sum += sizeof(timers) + ts->wheel().bytes();
  }
  return sum;
}

std::string hybrid::verify() const {
  for (std::size_t p = 0; p < all().size(); ++p) {
    timers& ts = *timers_[p];
    std::lock_guard held(ts.lock);
    const std::string where = "processor " + std::to_string(p) + ": ";
    if (std::string wrong = ts.wheel().describe_violation(); !wrong.empty()) return where + wrong;
    const std::int64_t first = ts.wheel().first();
    if (const auto said = ts.next.load(std::memory_order_relaxed); said != first) {
      return where + "the first time is said to be " + std::to_string(said) + " and is " +
             std::to_string(first);
    }
  }
  if (entries() < live()) {
    return std::to_string(live()) + " timers are armed, and there are " +
           std::to_string(entries()) + " entries";
  }
  return {};
}

}  // namespace verge::detail
