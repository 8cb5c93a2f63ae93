// SPDX-License-Identifier: Apache-2.0
// What the owner of a handle does to a timer, from any thread: add, del, mod, reset.
//
// The rules that make these safe against each other and against the heap's side are in
// state_machine.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include <engine/ten_states/heap_operations.h>
#include <engine/ten_states/timers.h>

namespace verge::detail {

template <class Policy>
void check_times(const char* operation, const basic_timer<Policy>& t, std::int64_t when,
                 std::int64_t period) {
  // Zero means "none" to threads that look without the lock: such a timer would be the heap's head
  // and hide all others (Go #42424).
  if ((when <= 0 && !mutated<Policy>(mutant::go_42424)) || period < 0) [[unlikely]] {
    Policy::bad_timer(operation, t, t.state.load(std::memory_order_relaxed));
  }
}

/// Puts t on own's heap and lets go of it: as waiting. The caller holds t - in modifying, or
/// because no other thread knows it. If the heap cannot grow, throws and has changed nothing.
/// `prepare` is called when it can; it takes the heap's reference, and may write t's fields.
template <class Policy, class Prepare, class Publish>
void insert_timer(basic_timers<Policy>& own, basic_timer<Policy>& t, std::int64_t when,
                  Prepare&& prepare, Publish&& publish) {
  {
    std::lock_guard guard(own.lock);
    own.heap.reserve(own.heap.size() + 1);
    clean_timers(own);
    prepare();
    t.when = when;
    t.owner.store(&own, std::memory_order_relaxed);
    own.heap.push(when, &t);
    own.heap_changed();
    // Under the lock, so that no thread that has it meets a timer that waits for the lock.
    publish();
  }
  if (!mutated<Policy>(mutant::go_38860)) Policy::wake_net_poller(own, when);
}

/// Starts a timer that no other thread knows yet; when, period, f and seq are set.
template <class Policy>
void add_timer(basic_timers<Policy>& own, basic_timer<Policy>& t) {
  check_times("add_timer: when must be positive, period not negative", t, t.when, t.period);
  const timer_state s = t.state.load(std::memory_order_relaxed);
  if (s != timer_state::no_status) [[unlikely]]
    Policy::bad_timer("add_timer", t, s);
  insert_timer(
      own, t, t.when,
      [&] {
        if constexpr (requires { Policy::acquire_new(own, t); }) {
          Policy::acquire_new(own, t);
        } else {
          Policy::acquire(t);
        }
      },
      // Not a compare-and-swap, which waits for every store before it, and the timer's memory is
      // usually in no cache. Only the caller knows the timer.
      [&] { t.state.store(timer_state::waiting, std::memory_order_release); });
}

/// Stops t. Returns whether it was pending: true promises that it will not fire, nor again if it is
/// periodic. False: it has fired, or was stopped before, or never started. `part` is called while a
/// pending timer is held: the last moment to touch it for a caller whose reference does not stay.
template <class Policy, class Part>
bool del_timer(basic_timer<Policy>& t, Part&& part) {
  for (;;) {
    timer_state s = t.state.load(std::memory_order_acquire);
    switch (s) {
      case timer_state::waiting:
      case timer_state::modified_earlier:
      case timer_state::modified_later:
        if (t.state.compare_exchange_strong(s, timer_state::modifying, std::memory_order_acquire,
                                            std::memory_order_relaxed)) {
          // Read before letting go: afterwards the timer may be on no heap, or on another.
          basic_timers<Policy>* owner = t.owner.load(std::memory_order_relaxed);
          part();
          if (mutated<Policy>(mutant::late_owner)) {
            t.state.store(timer_state::deleted, std::memory_order_release);
            owner = t.owner.load(std::memory_order_relaxed);
          }
          if (owner == nullptr) [[unlikely]] {
            Policy::bad_timer("del_timer: the timer has no owner", t, s);
          }
          // Counted first: if the timer was the last of a runtime that has ended, the heap is
          // destroyed with it.
          owner->deleted_timers.fetch_add(1, std::memory_order_relaxed);
          if (!mutated<Policy>(mutant::late_owner)) {
            t.state.store(timer_state::deleted, std::memory_order_release);
          }
          return true;
        }
        break;
      case timer_state::deleted:
      case timer_state::removing:
      case timer_state::removed:
        return false;
      case timer_state::no_status:
        if (mutated<Policy>(mutant::go_21874)) Policy::bad_timer("del_timer", t, s);
        return false;
      case timer_state::modifying:
        if (mutated<Policy>(mutant::go_37400)) Policy::bad_timer("del_timer", t, s);
        [[fallthrough]];
      case timer_state::running:
      case timer_state::moving:
        Policy::yield();
        break;
      default:
        Policy::bad_timer("del_timer", t, s);
    }
  }
}

template <class Policy>
bool del_timer(basic_timer<Policy>& t) {
  return del_timer(t, [] {});
}

/// Takes t into modifying, from whatever state it is in, and returns that state.
template <class Policy>
timer_state hold_for_mod(basic_timer<Policy>& t) {
  for (;;) {
    timer_state s = t.state.load(std::memory_order_acquire);
    switch (s) {
      case timer_state::removed:
        if (mutated<Policy>(mutant::go_35272)) {
          t.state.store(timer_state::modifying, std::memory_order_relaxed);
          return s;
        }
        [[fallthrough]];
      case timer_state::waiting:
      case timer_state::modified_earlier:
      case timer_state::modified_later:
      case timer_state::no_status:
      case timer_state::deleted:
        // seq_cst: "mod against a sweep" in state_machine.h.
        if (t.state.compare_exchange_strong(s, timer_state::modifying, std::memory_order_seq_cst,
                                            std::memory_order_relaxed)) {
          return s;
        }
        break;
      case timer_state::modifying:
        if (mutated<Policy>(mutant::go_37400)) Policy::bad_timer("mod_timer", t, s);
        [[fallthrough]];
      case timer_state::running:
      case timer_state::removing:
      case timer_state::moving:
        Policy::yield();
        break;
      default:
        Policy::bad_timer("mod_timer", t, s);
    }
  }
}

/// What mod_timer and reset_timer share: gives t the time `when`; `change` writes what else is to
/// be changed.
template <class Policy, class Change>
bool modify_timer(basic_timers<Policy>& own, basic_timer<Policy>& t, std::int64_t when,
                  Change&& change) {
  const timer_state was = hold_for_mod(t);
  if (!is_on_heap(was)) {
    try {
      insert_timer(
          own, t, when,
          [&] {
            change();
            Policy::acquire(t);
          },
          [&] { t.state.store(timer_state::waiting, std::memory_order_release); });
    } catch (...) {
      t.state.store(was, std::memory_order_release);
      throw;
    }
    return false;
  }

  // It may be on another processor's heap, so its key must stay what it is; the thread that has
  // that heap's lock next gives it its place.
  basic_timers<Policy>* const owner = t.owner.load(std::memory_order_relaxed);
  if (owner == nullptr) [[unlikely]] {
    Policy::bad_timer("mod_timer: the timer has no owner", t, was);
  }
  if (was == timer_state::deleted) owner->deleted_timers.fetch_sub(1, std::memory_order_relaxed);
  change();
  t.nextwhen = when;
  // Earlier than its place in the heap: whatever time it was given in between does not count.
  const bool earlier = when < t.when;
  if (earlier) owner->lower_modified_earliest(when);
  t.state.store(earlier ? timer_state::modified_earlier : timer_state::modified_later,
                std::memory_order_release);
  if (earlier) Policy::wake_net_poller(*owner, when);
  return is_pending(was);
}

/// Starts t anew, whatever state it is in. A timer on no heap goes onto own's; any other stays
/// where it is. Returns whether it was pending. `purpose` is f and seq, where timers have those.
template <class Policy, class... Purpose>
bool mod_timer(basic_timers<Policy>& own, basic_timer<Policy>& t, std::int64_t when,
               std::int64_t period, Purpose... purpose) {
  check_times("mod_timer: when must be positive, period not negative", t, when, period);
  return modify_timer(own, t, when, [&] {
    t.period = period;
    t.set_purpose(purpose...);
  });
}

/// mod_timer for a new time alone.
template <class Policy>
bool reset_timer(basic_timers<Policy>& own, basic_timer<Policy>& t, std::int64_t when) {
  check_times("reset_timer: when must be positive", t, when, 0);
  return modify_timer(own, t, when, [] {});
}

}  // namespace verge::detail
