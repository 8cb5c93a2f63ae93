// SPDX-License-Identifier: Apache-2.0
// What is done to a processor's heap, with its lock held: clean, adjust, run, clear deleted, move.
//
// Each of them meets timers that were stopped or modified since the lock was last held, and does
// what del and mod have left to do: takes the stopped ones off, gives the modified ones their
// place. The rules are in state_machine.h.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <clock/arithmetic.h>
#include <engine/ten_states/timers.h>

namespace verge::detail {

/// How many timers at the heap's head one call of clean_timers puts in order. It is called on every
/// insert, and an insert cannot make more than one timer to clean, so any small number keeps up;
/// without a bound one unlucky insert would hold the lock for all of them (Go #37779).
inline constexpr int clean_limit = 8;

/// From `s`, which was just read, to `held`. False if another thread was faster.
template <class Policy>
bool hold(basic_timer<Policy>& t, timer_state s, timer_state held) {
  // acquire: what mod wrote before it let go.
  return t.state.compare_exchange_strong(s, held, std::memory_order_acquire,
                                         std::memory_order_relaxed);
}

/// Releases a timer that was just taken off its heap because it was deleted. The caller must not
/// touch it afterwards: it may be freed.
template <class Policy>
void let_go_as_removed(basic_timer<Policy>& t) {
  t.state.store(timer_state::removed, std::memory_order_release);
  Policy::release(t);
}

/// The same, and counts it off.
template <class Policy>
void finish_removal(basic_timers<Policy>& ts, basic_timer<Policy>& t) {
  ts.deleted_timers.fetch_sub(1, std::memory_order_relaxed);
  let_go_as_removed(t);
}

/// Every timer on a heap knows that it is.
template <class Policy>
void check_owner(const char* operation, const basic_timers<Policy>& ts,
                 const basic_timer<Policy>& t) {
  if (t.owner.load(std::memory_order_relaxed) != &ts) [[unlikely]] {
    Policy::bad_timer(operation, t, t.state.load(std::memory_order_relaxed));
  }
}

/// Takes the heap's head off if it is deleted, gives it its place if it is modified. False if it is
/// neither, or was a moment ago and is being changed.
template <class Policy>
bool settle_head(basic_timers<Policy>& ts, basic_timer<Policy>& t, timer_state s) {
  switch (s) {
    case timer_state::deleted:
      if (!hold(t, s, timer_state::removing)) return false;
      ts.heap.pop();
      ts.heap_changed();
      finish_removal(ts, t);
      return true;
    case timer_state::modified_earlier:
    case timer_state::modified_later:
      if (!hold(t, s, timer_state::moving)) return false;
      t.when = t.nextwhen;
      ts.heap.update(0, t.when);
      ts.heap_changed();
      t.state.store(timer_state::waiting, std::memory_order_release);
      return true;
    default:
      return false;
  }
}

/// Puts the heap's head in order, as far as a few steps do: so that starting and stopping timers
/// one after the other does not pile them up. With the lock held.
template <class Policy>
void clean_timers(basic_timers<Policy>& ts) {
  for (int done = 0; done < clean_limit || mutated<Policy>(mutant::go_37779); ++done) {
    if (ts.heap.empty()) return;
    basic_timer<Policy>& t = *ts.heap.front().node;
    check_owner("clean_timers: the timer is on another's heap", ts, t);
    if (!settle_head(ts, t, t.state.load(std::memory_order_acquire))) return;
  }
}

/// Removes entry i and says where a scan of the heap has to go on: at the smallest index where
/// another entry stands now. That can be before i, for what fills the gap may belong further up;
/// going on at i would miss it (Go #47762).
template <class Policy>
std::size_t remove_in_scan(basic_timers<Policy>& ts, std::size_t i) {
  const std::size_t changed = ts.heap.remove(i);
  return mutated<Policy>(mutant::go_47762) ? i : changed;
}

/// If an earlier time was given to a timer here and that time has come: gives every modified timer
/// its place, and takes the deleted ones off. With the lock held.
template <class Policy>
void adjust_timers(basic_timers<Policy>& ts, std::int64_t now) {
  // The scan is for timers that are due and not at the head. Until the first of them is due it can
  // wait; otherwise every reset to an earlier time would cost a scan (Go #41699).
  const std::int64_t first = ts.timer_modified_earliest.load(std::memory_order_relaxed);
  if (first == 0 || (first > now && !mutated<Policy>(mutant::go_41699))) return;
  if (!mutated<Policy>(mutant::go_47329)) ts.clear_modified_earliest();

  basic_timer<Policy>* moved = nullptr;
  for (std::size_t i = 0; i < ts.heap.size();) {
    basic_timer<Policy>& t = *ts.heap[i].node;
    check_owner("adjust_timers: the timer is on another's heap", ts, t);
    // seq_cst: "mod against a sweep" in state_machine.h.
    const timer_state s = t.state.load(std::memory_order_seq_cst);
    switch (s) {
      case timer_state::waiting:
        ++i;
        break;
      case timer_state::deleted:
        if (hold(t, s, timer_state::removing)) {
          i = remove_in_scan(ts, i);
          finish_removal(ts, t);
        }
        break;
      case timer_state::modified_earlier:
      case timer_state::modified_later:
        // It is put back after the scan, so that the scan does not meet it again.
        if (hold(t, s, timer_state::moving)) {
          t.when = t.nextwhen;
          i = remove_in_scan(ts, i);
          t.next_moved = moved;
          moved = &t;
          if (mutated<Policy>(mutant::go_35367)) {
            t.state.store(timer_state::waiting, std::memory_order_release);
          }
        }
        break;
      case timer_state::modifying:
        Policy::yield();
        break;
      default:
        Policy::bad_timer("adjust_timers", t, s);
    }
  }
  while (moved != nullptr) {
    basic_timer<Policy>& t = *moved;
    moved = t.next_moved;
    // There is room: it was on this heap a moment ago.
    ts.heap.push(t.when, &t);
    // Not before it is back on a heap (Go #35367).
    if (!mutated<Policy>(mutant::go_35367)) {
      t.state.store(timer_state::waiting, std::memory_order_release);
    }
  }
  if (mutated<Policy>(mutant::go_47329)) ts.clear_modified_earliest();
  ts.heap_changed();
}

/// Fires t, the heap's head, which is due and held in running. With the lock held, but released
/// for the call of f: f may start, stop and reset timers here (Go #35532).
template <class Policy>
void run_one_timer(basic_timers<Policy>& ts, basic_timer<Policy>& t, std::int64_t now) {
  const auto f = t.purpose();
  if constexpr (requires { Policy::fired(ts, t, now); }) Policy::fired(ts, t, now);
  // The call has a reference: the heap's, which t leaves, or one of its own.
  if (t.period > 0) {
    Policy::acquire(t);
    t.when = next_period(t.when, t.period, now);
    ts.heap.update(0, t.when);
    ts.heap_changed();
    t.state.store(timer_state::waiting, std::memory_order_release);
  } else {
    ts.heap.pop();
    ts.heap_changed();
    t.state.store(timer_state::no_status, std::memory_order_release);
  }
  if (mutated<Policy>(mutant::early_release)) Policy::release(t);
  if (!mutated<Policy>(mutant::go_35532)) ts.lock.unlock();
  f(t, now);
  if (!mutated<Policy>(mutant::early_release)) Policy::release(t);
  if (!mutated<Policy>(mutant::go_35532)) ts.lock.lock();
}

/// Fires the heap's head if it is due. Returns 0 if it did, else the time at which the next timer
/// is due, or -1 if there is none. With the lock held; it may have been released in between.
template <class Policy>
std::int64_t run_timer(basic_timers<Policy>& ts, std::int64_t now) {
  while (!ts.heap.empty()) {
    const auto& head = ts.heap.front();
    basic_timer<Policy>& t = *head.node;
    check_owner("run_timer: the timer is on another's heap", ts, t);
    const timer_state s = t.state.load(std::memory_order_acquire);
    switch (s) {
      case timer_state::waiting:
        if (head.when > now) return head.when;
        if (hold(t, s, timer_state::running)) {
          run_one_timer(ts, t, now);
          return 0;
        }
        break;
      case timer_state::deleted:
      case timer_state::modified_earlier:
      case timer_state::modified_later:
        settle_head(ts, t, s);
        break;
      case timer_state::modifying:
        Policy::yield();
        break;
      default:
        Policy::bad_timer("run_timer", t, s);
    }
  }
  return -1;
}

/// Takes every deleted timer off the heap, and gives the modified ones their place while at it. By
/// the heap's own processor, when should_clear_deleted() says so. With the lock held.
template <class Policy>
void clear_deleted_timers(basic_timers<Policy>& ts) {
  ts.clear_modified_earliest();
  // seq_cst, here and below: "mod against a sweep" in state_machine.h.
  const auto not_waiting = [&](const auto& entry) -> bool {
    const basic_timer<Policy>& t = *entry.node;
    // Not a branch: most are waiting, but which ones cannot be foreseen.
    return static_cast<int>(t.state.load(std::memory_order_seq_cst) != timer_state::waiting) |
           static_cast<int>(t.owner.load(std::memory_order_relaxed) != &ts);
  };
  std::int32_t cleared = 0;
  ts.heap.filter(not_waiting, [&](auto& entry) {
    basic_timer<Policy>& t = *entry.node;
    check_owner("clear_deleted_timers: the timer is on another's heap", ts, t);
    for (;;) {
      const timer_state s = t.state.load(std::memory_order_seq_cst);
      switch (s) {
        case timer_state::waiting:
          return filter_verdict::keep;
        case timer_state::deleted:
          if (!hold(t, s, timer_state::removing)) break;
          ++cleared;
          let_go_as_removed(t);
          return filter_verdict::drop;
        case timer_state::modified_earlier:
        case timer_state::modified_later:
          if (!hold(t, s, timer_state::moving)) break;
          // Not in its place before the filter is through. But on the heap all the time, under the
          // key it will have: that is what waiting promises to those without the lock.
          entry.when = t.when = t.nextwhen;
          t.state.store(timer_state::waiting, std::memory_order_release);
          return filter_verdict::keep;
        case timer_state::modifying:
          Policy::yield();
          break;
        default:
          Policy::bad_timer("clear_deleted_timers", t, s);
      }
    }
  });
  // All at once: an atomic operation for each would be a good part of what this takes.
  ts.deleted_timers.fetch_sub(cleared, std::memory_order_relaxed);
  ts.heap.shrink();
  ts.heap_changed();
}

/// Hands all timers of `from`, whose processor is retired, to `to`. With both locks held. If `to`
/// cannot grow, throws std::bad_alloc and has moved none. The caller makes sure that no thread
/// sleeps past next_when(to) afterwards (Go #35274).
template <class Policy>
void move_timers(basic_timers<Policy>& to, basic_timers<Policy>& from) {
  to.heap.reserve(to.heap.size() + from.heap.size());
  while (!from.heap.empty()) {
    // From the end: nothing shifts, and no timer is in two heaps.
    const std::size_t last = from.heap.size() - 1;
    basic_timer<Policy>& t = *from.heap[last].node;
    check_owner("move_timers: the timer is on another's heap", from, t);
    const timer_state s = t.state.load(std::memory_order_acquire);
    switch (s) {
      case timer_state::waiting:
      case timer_state::modified_earlier:
      case timer_state::modified_later:
        // Never as waiting with no owner (Go #43712).
        if (mutated<Policy>(mutant::go_43712)) {
          t.owner.store(nullptr, std::memory_order_relaxed);
        } else if (!hold(t, s, timer_state::moving)) {
          break;
        }
        if (s != timer_state::waiting) t.when = t.nextwhen;
        from.heap.remove(last);
        t.owner.store(&to, std::memory_order_relaxed);
        to.heap.push(t.when, &t);
        to.heap_changed();
        t.state.store(timer_state::waiting, std::memory_order_release);
        break;
      case timer_state::deleted:
        // There is nothing to hold it for: one step, and it is off.
        if (!hold(t, s, timer_state::removed)) break;
        from.heap.remove(last);
        from.deleted_timers.fetch_sub(1, std::memory_order_relaxed);
        Policy::release(t);
        break;
      case timer_state::modifying:
        Policy::yield();
        break;
      default:
        Policy::bad_timer("move_timers", t, s);
    }
  }
  from.heap.shrink();
  from.heap_changed();
}

/// Takes all timers off, as if each had been stopped, and waits for those that another thread is
/// changing. With the lock held; the timers' owners may stop and reset them meanwhile.
template <class Policy>
void remove_all_timers(basic_timers<Policy>& ts) {
  while (!ts.heap.empty()) {
    const std::size_t last = ts.heap.size() - 1;
    basic_timer<Policy>& t = *ts.heap[last].node;
    const timer_state s = t.state.load(std::memory_order_acquire);
    switch (s) {
      case timer_state::waiting:
      case timer_state::modified_earlier:
      case timer_state::modified_later:
      case timer_state::deleted:
        if (!hold(t, s, timer_state::removing)) break;
        ts.heap.remove(last);
        if (s == timer_state::deleted) ts.deleted_timers.fetch_sub(1, std::memory_order_relaxed);
        let_go_as_removed(t);
        break;
      case timer_state::modifying:
        Policy::yield();
        break;
      default:
        Policy::bad_timer("remove_all_timers", t, s);
    }
  }
  ts.heap_changed();
}

}  // namespace verge::detail
