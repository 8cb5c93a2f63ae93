// SPDX-License-Identifier: Apache-2.0
// basic_timer: one timer as the state machine and the heaps see it.
//
// It is part of something larger - a callback's node, a sleeping task, a channel - which f finds
// from the basic_timer& that it is given. It has no destructor of interest and owns nothing; its
// lifetime depends on the references that Policy::acquire and Policy::release count.
//
// The rules about which thread may touch which field, and when, are in state_machine.h.
#pragma once

#include <cstdint>

#include <engine/ten_states/timer_state.h>

namespace verge::detail {

template <class Policy>
class basic_timers;

template <class Policy>
struct basic_timer;

/// What a due timer does: each its own, unless the policy says what all of them do.
template <class Policy>
struct timer_purpose {
  /// Called with no lock held, by the thread that runs the timers; must neither throw nor block.
  /// `now` is the time at which the timer was found due.
  using fire_fn = void (*)(basic_timer<Policy>& t, std::uint64_t seq, std::int64_t now) noexcept;

  fire_fn f{nullptr};
  /// Handed to f: which arming of the timer it is that fires.
  std::uint64_t seq{0};

  void set_purpose(fire_fn function, std::uint64_t number) noexcept {
    f = function;
    seq = number;
  }
  /// The call of f as it is now, whatever the timer is given to do later.
  [[nodiscard]] auto purpose() const noexcept {
    return [f = f, seq = seq](basic_timer<Policy>& t, std::int64_t now) { f(t, seq, now); };
  }
};

template <class Policy>
requires requires { &Policy::fire; }
struct timer_purpose<Policy> {
  void set_purpose() noexcept {}
  [[nodiscard]] auto purpose() const noexcept { return &Policy::fire; }
};

template <class Policy>
struct basic_timer : timer_purpose<Policy> {
  // Those that a sweep of the heap looks at come first: they are on one cache line.
  typename Policy::template atomic<timer_state> state{timer_state::no_status};
  /// The processor whose heap it is on. Means nothing in no_status and removed.
  typename Policy::template atomic<basic_timers<Policy>*> owner{nullptr};
  /// The key it has in the heap. Positive.
  std::int64_t when{0};
  union {
    /// In modified_earlier and modified_later: when it is really due.
    std::int64_t nextwhen{0};
    /// In moving: the next of those that adjust has taken off the heap. So adjust allocates
    /// nothing.
    basic_timer* next_moved;
  };
  /// Zero for a one-shot.
  std::int64_t period{0};
};

}  // namespace verge::detail
