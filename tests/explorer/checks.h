// SPDX-License-Identifier: Apache-2.0
// checks: the invariants of the timers and heaps of a scenario.
//
// After every step:
//   state change   each change of a timer's state is one that the table has for the operation
//   holder         a held timer is released by the thread that holds it
//   structure      a timer in a state that says it is on a heap is on one, its owner's; one that
//                  says it is on none is on none
//   sleepers       next_when() of a heap is no later than any timer on it that is pending
//   references     no freed timer is accessed, and none is freed while its handle exists
//   bad timer      the machine has found no impossible state
// When all threads have finished:
//   heap order, counters, references
//                  as they must be when no operation is in progress
//   answers        what stop and reset returned and what fired is linearizable (history.h)
//   oversleeping   a poller that went to sleep was woken, or nothing is due before it wakes
//   drain          run on as a scheduler would, sleeping from one next_when() to the next, every
//                  pending timer fires, once, at its time; then the heaps are empty
//   busy loop      and there was no unnecessary wake-up
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <explorer/history.h>
#include <explorer/stage.h>

namespace verge::test {

template <class Policy>
class checks {
 public:
  using timer = explored_timer<Policy>;
  using timers = detail::basic_timers<Policy>;

  explicit checks(stage<Policy>& s) : stage_(s) {}

  /// What holds after every step.
  void after_step() {
    for (std::size_t i = 0; i < stage_.all.size(); ++i) inspect(stage_.all[i], i);
  }

  /// What holds when no operation is in progress.
  void at_rest() {
    heaps_at_rest();
    for (std::size_t i = 0; i < stage_.all.size(); ++i) check_timer(stage_.all[i], i);
  }

  void heaps_at_rest() {
    for (std::size_t h = 0; h < stage_.heaps.size(); ++h) check_heap(h);
  }

  /// What holds when everything pending has run; `expected` is how timer i was armed before.
  void after_drain(const timer& t, std::size_t i, const arming& expected) {
    const std::size_t times = !expected.pending ? 0 : expected.period > 0 ? 2 : 1;
    if (t.drained.size() != times) {
      stage_.runner.fail("drain", stage_.name(i) + " was " + to_text(expected) + " and fired " +
                                      std::to_string(t.drained.size()) + " times");
    }
    if (times != 0 && (t.drained[0].with.when != std::max(expected.when, stage_.script.now) ||
                       t.drained[0].with.seq != expected.seq)) {
      stage_.runner.fail(
          "drain", stage_.name(i) + " was " + to_text(expected) + ": " + to_text(t.drained[0]));
    }
    if (is_on_heap(t.state.peek()) || t.references != (t.dropped ? 0 : 1)) {
      stage_.runner.fail("drain", stage_.name(i) + " is left as " +
                                      detail::name_of(t.state.peek()) +
                                      " with references: " + std::to_string(t.references));
    }
  }

 private:
  void inspect(const timer& t, std::size_t i) {
    const timer_state s = t.state.peek();
    const timers* owner = t.owner.peek();
    std::size_t found = 0;
    bool locked = false;
    for (const timers& ts : stage_.heaps) {
      found += stage_.count(ts, t);
      locked = locked || ts.lock.taken();
    }
    // While a heap is locked its array may be inconsistent: a timer that is in it twice is being
    // moved, and one that is already in it has not been released yet.
    if (is_on_heap(s) && !is_held(s)) {
      if (owner == nullptr) {
        stage_.runner.fail("structure",
                           stage_.name(i) + " is " + detail::name_of(s) + " and has no owner");
      }
      if (found == 0 || stage_.count(*owner, t) != found || (!locked && found != 1)) {
        stage_.runner.fail("structure", stage_.name(i) + " is " + detail::name_of(s) + " and on " +
                                            std::to_string(found) + " heaps");
      }
    } else if (!is_held(s) && !locked && found != 0) {
      stage_.runner.fail("structure",
                         stage_.name(i) + " is " + detail::name_of(s) + " and on a heap");
    }
    if (is_pending(s)) {
      const std::int64_t due = s == timer_state::waiting ? t.when : t.nextwhen;
      const std::int64_t look = stage_.first_look(*owner);
      if (look == 0 || look > due) {
        stage_.runner.fail("sleepers", stage_.name(i) + " is due at " + std::to_string(due) +
                                           " and its heap must be checked at " +
                                           (look == 0 ? "never" : "at " + std::to_string(look)));
      }
    }
    if (t.freed && found != 0 && !locked) {
      stage_.runner.fail("references", stage_.name(i) + " is freed and on a heap");
    }
  }

  void check_heap(std::size_t h) {
    timers& ts = stage_.heaps[h];
    const std::string of = "heap " + std::to_string(h) + ": ";
    if (ts.lock.taken()) stage_.runner.fail("structure", of + "still locked");
    if (!ts.heap.verify()) stage_.runner.fail("heap order", of + ts.heap.describe_violation());
    std::int32_t deleted = 0;
    std::int64_t earliest = INT64_MAX;
    for (const auto& e : ts.heap) {
      const auto& t = *static_cast<const timer*>(e.node);
      if (t.when != e.when)
        stage_.runner.fail("heap order", of + stage_.name(t) + " has another key");
      if (t.state.peek() == timer_state::deleted) ++deleted;
      if (t.state.peek() == timer_state::modified_earlier)
        earliest = std::min(earliest, t.nextwhen);
    }
    const auto equal = [&](const char* what, std::int64_t is, std::int64_t ought) {
      if (is != ought) {
        stage_.runner.fail("counters", of + what + " is " + std::to_string(is) +
                                           " and ought to be " + std::to_string(ought));
      }
    };
    equal("num_timers", ts.num_timers.peek(), static_cast<std::int64_t>(ts.heap.size()));
    equal("deleted_timers", ts.deleted_timers.peek(), deleted);
    equal("timer0_when", ts.timer0_when.peek(), ts.heap.empty() ? 0 : ts.heap.front().when);
    const std::int64_t known = ts.timer_modified_earliest.peek();
    if (ts.heap.empty()) equal("timer_modified_earliest of no timers", known, 0);
    if (earliest != INT64_MAX && (known == 0 || known > earliest)) {
      equal("timer_modified_earliest", known, earliest);
    }
  }

  void check_timer(const timer& t, std::size_t i) {
    if (is_held(t.state.peek())) {
      stage_.runner.fail("structure",
                         stage_.name(i) + " is left in " + detail::name_of(t.state.peek()));
    }
    inspect(t, i);
    const int held = (is_on_heap(t.state.peek()) ? 1 : 0) + (t.dropped ? 0 : 1);
    if (t.references != held) {
      stage_.runner.fail("references", stage_.name(i) + " has " + std::to_string(t.references) +
                                           " references and ought to have " + std::to_string(held));
    }
    if (!explains(t.events, {t.at_start}, stage_.armed(t))) {
      std::string text = stage_.name(i) + " was " + to_text(t.at_start);
      for (const event& e : t.events) text += "; " + to_text(e);
      stage_.runner.fail("answers", text + "; in the end it is " + to_text(stage_.armed(t)));
    }
  }

  stage<Policy>& stage_;
};

}  // namespace verge::test
