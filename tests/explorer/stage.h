// SPDX-License-Identifier: Apache-2.0
// stage: the timers and heaps of a scenario, and their names.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <explorer/explorer.h>
#include <explorer/explorer_policy.h>
#include <explorer/history.h>
#include <explorer/scenario.h>

namespace verge::test {

template <class Policy>
struct explored_timer : detail::basic_timer<Policy> {
  int references = 0;
  bool freed = false;
  /// Its handle was destroyed.
  bool dropped = false;
  /// The thread that holds it, in a held state.
  std::size_t holder = 0;
  /// The step at which it was last found due.
  std::size_t fire_begin = 0;
  callback in_f = callback::nothing;
  arming at_start;
  /// What happened to it while the threads ran, and when it fired afterwards.
  std::vector<event> events;
  std::vector<event> drained;
};

template <class Policy>
struct stage {
  using timer = explored_timer<Policy>;
  using timers = detail::basic_timers<Policy>;
  using fire_fn = typename timer::fire_fn;

  stage(explorer& e, const scenario& s) : runner(e), script(s), all(s.timers.size()) {
    for (timer& t : all) {
      t.events.reserve(16);
      t.drained.reserve(16);
    }
  }

  explorer& runner;
  const scenario& script;
  std::vector<timer> all;
  std::array<timers, 2> heaps;

  /// Brings every timer to its start state, by the operations that lead there.
  void set(fire_fn f) {
    for (timers& ts : heaps) start_over(ts);
    for (std::size_t i = 0; i < all.size(); ++i) start_over(all[i], script.timers[i], i, f);
    // In this order, because adding a timer cleans the head of the heap.
    const auto each = [&](auto&& bring) {
      for (std::size_t i = 0; i < all.size(); ++i) bring(all[i], script.timers[i]);
    };
    each([&](timer& t, const timer_setup& how) {
      if (how.start != timer_state::removed) return;
      timers& ts = heaps[how.heap];
      add_timer(ts, t);
      del_timer(t);
      clear_deleted_timers(ts);
    });
    each([&](timer& t, const timer_setup& how) {
      if (is_on_heap(how.start)) add_timer(heaps[how.heap], t);
    });
    each([&](timer& t, const timer_setup& how) {
      if (how.start == timer_state::deleted) del_timer(t);
      if (how.nextwhen != 0) reset_timer(heaps[how.heap], t, how.nextwhen);
    });
    for (timer& t : all) t.at_start = armed(t);
  }

  /// How the timer is armed, if no operation is in progress.
  static arming armed(const timer& t) {
    const timer_state s = t.state.peek();
    return {is_pending(s), s == timer_state::waiting ? t.when : t.nextwhen, t.period, t.seq};
  }

  /// When its heap must be checked next: next_when() without steps.
  static std::int64_t first_look(const timers& ts) {
    const std::int64_t a = ts.timer0_when.peek();
    const std::int64_t b = ts.timer_modified_earliest.peek();
    return a == 0 ? b : b == 0 ? a : std::min(a, b);
  }

  static std::size_t count(const timers& ts, const timer& t) {
    return static_cast<std::size_t>(
        std::count_if(ts.heap.begin(), ts.heap.end(), [&](const auto& e) { return e.node == &t; }));
  }

  timer* timer_at(const void* p) {
    const auto* at = static_cast<const std::byte*>(p);
    const auto* first = reinterpret_cast<const std::byte*>(all.data());
    if (at < first || at >= first + all.size() * sizeof(timer)) return nullptr;
    return &all[static_cast<std::size_t>(at - first) / sizeof(timer)];
  }
  static std::string name(std::size_t i) { return "timer " + std::to_string(i); }
  std::string name(const timer& t) const { return name(static_cast<std::size_t>(&t - all.data())); }
  /// What an atomic is, in words.
  std::string name_of(const void* p) {
    if (timer* t = timer_at(p)) return name(*t) + (p == &t->state ? "'s state" : "'s owner");
    for (std::size_t h = 0; h < heaps.size(); ++h) {
      const timers& ts = heaps[h];
      std::string of = "heap " + std::to_string(h);
      if (p == &ts.lock) return of;  // the lock is the first member: also the heap itself
      if (p == &ts.num_timers) return of + "'s num_timers";
      if (p == &ts.deleted_timers) return of + "'s deleted_timers";
      if (p == &ts.timer0_when) return of + "'s timer0_when";
      if (p == &ts.timer_modified_earliest) return of + "'s timer_modified_earliest";
    }
    return "poll_until";
  }

 private:
  void start_over(timers& ts) {
    ts.lock.reset();
    ts.heap.clear();
    if (script.no_memory) ts.heap.shrink();
    ts.num_timers.reset(0);
    ts.deleted_timers.reset(0);
    ts.timer0_when.reset(0);
    ts.timer_modified_earliest.reset(0);
  }

  void start_over(timer& t, const timer_setup& how, std::size_t i, fire_fn f) {
    t.owner.reset(nullptr);
    t.state.reset(timer_state::no_status);
    t.when = how.when;
    t.nextwhen = 0;
    t.period = how.period;
    t.f = f;
    t.seq = i + 1;
    t.references = 1;  // the handle's
    t.freed = t.dropped = false;
    t.in_f = how.f;
    t.events.clear();
    t.drained.clear();
  }
};

}  // namespace verge::test
