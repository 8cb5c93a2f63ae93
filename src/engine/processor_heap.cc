// SPDX-License-Identifier: Apache-2.0

#include <engine/processor_heap.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include <base/yield_or_sleep.h>
#include <engine/ten_states/bad_timer.h>
#include <node/node_store.h>

namespace verge::detail {

namespace {

/// Below this many timers it does not pay to clear stopped ones away at once.
constexpr std::int32_t tidy_from = 64;
/// From this many on their memory is worth more than the time of a pass over the heap.
constexpr std::int32_t many = 4096;

}  // namespace

void processor_heap::policy::yield() noexcept { yield_or_sleep(); }

/// For a timer that is now the first of its heap. For any other, the thread that made the first one
/// makes sure that no thread sleeps past that, unless it was preempted before it could.
void processor_heap::policy::wake_net_poller(basic_timers<policy>& ts, std::int64_t when) noexcept {
  engine_host& host = static_cast<timers&>(ts).engine.host_;
  if (when <= detail::next_when(ts) || host.sleeps_past(when)) host.wake_net_poller(when);
}

void processor_heap::policy::fired(basic_timers<policy>& ts, machine_timer& t,
                                   std::int64_t now) noexcept {
  static_cast<timers&>(ts).engine.host_.fires(static_cast<node&>(t), t.when, now);
}

void processor_heap::policy::acquire(machine_timer& t) noexcept {
  static_cast<node&>(t).refs.fetch_add(1, std::memory_order_relaxed);
}

inline void processor_heap::policy::acquire_new(basic_timers<policy>& ts,
                                                machine_timer& t) noexcept {
  static_cast<node&>(t).refs.store(2, std::memory_order_relaxed);  // the handle's, and the heap's
  static_cast<timers&>(ts).give_back_one();
}

inline void processor_heap::timers::give_back_one() noexcept {
  if (spare == nullptr) return;
  node& n = static_cast<node&>(*std::exchange(spare, spare->next_moved));
  // This one will be written to soon, the next one be looked at here.
  __builtin_prefetch(static_cast<timer_node*>(&n) + 1, 1);
  __builtin_prefetch(spare, 1);
  node_store::of(n).free(n);
}

/// May be called with the heap's lock held; and is, if the timer was left to the heap, because then
/// no call of f has a reference.
inline void processor_heap::policy::release(machine_timer& t) noexcept {
  node& n = static_cast<node&>(t);
  if (n.note().load(std::memory_order_relaxed) == node::left_to_heap) {
    n.note().store(0, std::memory_order_relaxed);
    auto& ts = static_cast<timers&>(*t.owner.load(std::memory_order_relaxed));
    t.next_moved = std::exchange(ts.spare, &t);
  } else {
    release_shared(n);
  }
}

void processor_heap::policy::release_shared(node& n) noexcept {
  if (n.refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (n.does.load(std::memory_order_acquire)->destroy == nullptr) {
    node_store::of(n).free(n);
    return;
  }
  node_store& of = node_store::of(n);
  static_cast<timers&>(*n.owner.load(std::memory_order_relaxed)).engine.dead_.add(n);
  of.leave_dead();
}

void processor_heap::policy::bad_timer(const char* operation, const machine_timer& t,
                                       timer_state s) noexcept {
  abort_on_bad_timer(operation, &t, s, t.when);
}

void processor_heap::policy::fire(machine_timer& t, std::int64_t now) noexcept {
  timer_node& n = static_cast<node&>(t);
  n.does.load(std::memory_order_acquire)->fire(n, now);
}

/// With the lock held.
void processor_heap::sweep(timers& ts) noexcept {
  ts.give_back_all();
  clear_deleted_timers(ts);
}

/// A thread that holds no processor starts and stops timers in a heap whose processor may be asleep
/// until the first of them is due, and a task may do so for long before its processor checks
/// timers: they remove the stopped timers themselves. If there are few timers, only when half of
/// them are stopped: then a pass takes half the time for each. If there are many, earlier, because
/// their memory would push the rest out of the cache.
inline void processor_heap::tidy(timers& ts) noexcept {
  const std::int32_t deleted = ts.deleted_timers.load(std::memory_order_relaxed);
  const auto all = static_cast<std::int32_t>(ts.num_timers.load(std::memory_order_relaxed));
  if (deleted > (all < many ? all / 2 : all / 4) && all >= tidy_from) [[unlikely]] {
    std::lock_guard held(ts.lock);
    if (should_clear_deleted(ts)) sweep(ts);
  }
}

void processor_heap::start(timer_node& t, std::int64_t when, std::int64_t period) {
  node& n = static_cast<node&>(t);
  n.when = when;
  n.period = period;
  timers& ts = home();
  add_timer(ts, n);
  tidy(ts);
}

bool processor_heap::stop(timer_node& t) noexcept { return del_timer(static_cast<node&>(t)); }

left_with processor_heap::stop_for_good(timer_node& t, bool& was_waiting) noexcept {
  node& n = static_cast<node&>(t);
  bool left = false;
  const bool no_payload = n.does.load(std::memory_order_acquire)->destroy == nullptr;
  was_waiting = del_timer(n, [&] {
    // A pending timer has the handle's reference and the heap's, and every firing has one. Acquire:
    // what a callback did that has just ended happens before the end of the handle.
    left = no_payload && n.refs.load(std::memory_order_acquire) == 2;
    if (left) n.note().store(node::left_to_heap, std::memory_order_relaxed);
  });
  return left ? left_with::engine : caller_or_others(t);
}

bool processor_heap::reset(timer_node& t, std::int64_t when, std::int64_t period) {
  timers& ts = home();
  const bool pending = mod_timer(ts, static_cast<node&>(t), when, period);
  tidy(ts);
  return pending;
}

timer_check processor_heap::check_timers(unsigned p, std::int64_t now, bool own) noexcept {
  timers& ts = *timers_[p];
  const std::int64_t next = detail::next_when(ts);
  const bool clear = own && should_clear_deleted(ts);
  if (!clear && !is_due(host_, next, now)) return {.now = now, .next = next, .ran = 0};
  if (now == 0) now = host_.now();

  unsigned ran = 0;
  const unsigned room = host_.firing_room();
  {
    std::lock_guard held(ts.lock);
    adjust_timers(ts, now);
    while (ran < room && run_timer(ts, now) == 0) ++ran;
    // By its own processor only: it costs a pass over the heap, which a thief has no time for.
    if (own && should_clear_deleted(ts)) sweep(ts);
  }
  dead_.bury();
  return {.now = now, .next = detail::next_when(ts), .ran = ran};
}

std::int64_t processor_heap::next_when(unsigned p) const noexcept {
  return detail::next_when(*timers_[p]);
}

std::int64_t processor_heap::next_exactly(unsigned p) noexcept {
  timers& ts = *timers_[p];
  std::int64_t next = 0;
  {
    std::lock_guard held(ts.lock);
    adjust_timers(ts, INT64_MAX);
    // Nothing is due at time 0: this only puts the head in order.
    next = run_timer(ts, 0);
  }
  dead_.bury();
  return std::max<std::int64_t>(next, 0);
}

bool processor_heap::tidy_before_sleep(unsigned n) noexcept {
  bool any = false;
  for (unsigned p = 0; p < n; ++p) {
    timers& ts = *timers_[p];
    const std::int32_t deleted = ts.deleted_timers.load(std::memory_order_relaxed);
    const auto all = static_cast<std::int32_t>(ts.num_timers.load(std::memory_order_relaxed));
    if (deleted <= all / 2 || all > many) continue;
    {
      std::lock_guard held(ts.lock);
      sweep(ts);
    }
    any = true;
  }
  dead_.bury();
  return any;
}

void processor_heap::grow(unsigned n) {
  for (unsigned i = 0; i < n; ++i) {
    if (timers_[i] == nullptr) timers_[i] = std::make_unique<timers>(*this);
  }
}

void processor_heap::move_timers(unsigned from, unsigned to) noexcept {
  timers& source = *timers_[from];
  timers& target = *timers_[to];
  if (&source == &target) return;
  {
    std::scoped_lock both(&source < &target ? source.lock : target.lock,
                          &source < &target ? target.lock : source.lock);
    try {
      detail::move_timers(target, source);
    } catch (const std::bad_alloc&) {
      // They stay where they are: thieves look at the timers of retired processors, too.
    }
    source.give_back_all();
  }
  dead_.bury();
  if (const std::int64_t next = detail::next_when(target); next != 0) host_.wake_net_poller(next);
}

void processor_heap::drain() noexcept {
  for (auto& ts : timers_) {
    if (ts == nullptr) continue;
    {
      std::lock_guard held(ts->lock);
      remove_all_timers(*ts);
      ts->give_back_all();
    }
    dead_.bury();
  }
}

timer_counts processor_heap::counts(unsigned p) const noexcept {
  if (p >= timers_.size() || timers_[p] == nullptr) return {};
  const timers& ts = *timers_[p];
  const auto all = static_cast<std::int64_t>(ts.num_timers.load(std::memory_order_relaxed));
  const auto deleted =
      std::clamp<std::int64_t>(ts.deleted_timers.load(std::memory_order_relaxed), 0, all);
  return {.live = static_cast<std::uint64_t>(all - deleted),
          .deleted = static_cast<std::uint64_t>(deleted)};
}

std::size_t processor_heap::bytes() const noexcept {
  std::size_t sum = 0;
  for (const auto& ts : timers_) {
    if (ts == nullptr) continue;
    std::lock_guard held(ts->lock);
    sum += sizeof(timers) + ts->heap.bytes();
  }
  return sum;
}

std::string processor_heap::verify(const timers& ts) {
  if (std::string wrong = ts.heap.describe_violation(); !wrong.empty()) return wrong;
  const std::int64_t earliest = ts.timer_modified_earliest.load(std::memory_order_relaxed);
  std::int64_t deleted = 0;
  for (const auto& [when, t] : ts.heap) {
    const timer_state s = t->state.load(std::memory_order_acquire);
    const std::string entry = "the entry for " + std::to_string(when) + ", " + name_of(s) + ", ";
    if (t->owner.load(std::memory_order_relaxed) != &ts) return entry + "is on another's heap";
    if (t->when != when) return entry + "has a timer with key " + std::to_string(t->when);
    if (!is_on_heap(s) || is_held(s)) return entry + "is in a state it can not be left in";
    if (s == timer_state::modified_later && t->nextwhen < when) return entry + "is due earlier";
    if (s == timer_state::modified_earlier) {
      if (t->nextwhen >= when) return entry + "is due no earlier";
      if (earliest == 0 || earliest > t->nextwhen) {
        return entry + "is due at " + std::to_string(t->nextwhen) +
               ", and the earliest modified time is said to be " + std::to_string(earliest);
      }
    }
    if (s == timer_state::deleted) ++deleted;
  }
  const auto differs = [](const char* what, std::int64_t said, std::int64_t found) {
    return std::string(what) + " is said to be " + std::to_string(said) + " and is " +
           std::to_string(found);
  };
  const auto size = static_cast<std::int64_t>(ts.heap.size());
  if (const auto n = ts.num_timers.load(std::memory_order_relaxed); n != size) {
    return differs("the number of timers", n, size);
  }
  if (const auto n = ts.deleted_timers.load(std::memory_order_relaxed); n != deleted) {
    return differs("the number of deleted timers", n, deleted);
  }
  const std::int64_t first = ts.heap.empty() ? 0 : ts.heap.front().when;
  if (const auto n = ts.timer0_when.load(std::memory_order_relaxed); n != first) {
    return differs("the time of the first timer", n, first);
  }
  if (ts.heap.empty() && earliest != 0) {
    return differs("the earliest modified time of an empty heap", earliest, 0);
  }
  return {};
}

/// By their keys: one that was reset and not yet moved in its heap is where it was.
void processor_heap::for_each_pending(void (*f)(void*, const timer_node&, std::int64_t),
                                      void* arg) const {
  for (const auto& ts : timers_) {
    if (ts == nullptr) return;
    std::lock_guard held(ts->lock);
    for (const auto& [when, t] : ts->heap) {
      const timer_state s = t->state.load(std::memory_order_acquire);
      if (is_on_heap(s) && s != timer_state::deleted) f(arg, static_cast<const node&>(*t), when);
    }
  }
}

std::string processor_heap::verify() const {
  for (std::size_t p = 0; p < timers_.size(); ++p) {
    if (timers_[p] == nullptr) continue;
    std::lock_guard held(timers_[p]->lock);
    if (std::string wrong = verify(*timers_[p]); !wrong.empty()) {
      return "processor " + std::to_string(p) + ": " + wrong;
    }
  }
  return {};
}

}  // namespace verge::detail
