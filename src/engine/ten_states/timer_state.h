// SPDX-License-Identifier: Apache-2.0
// timer_state: the ten states of a timer, and which operation may change which into which.
//
// A timer's state says where the timer is (on a processor's heap or on none), whether its time and
// its place in the heap can be trusted, and in four of the ten states that some thread is at work
// on it and all others have to wait: those four are the timer's lock.
//
//               add                     due                 one-shot
//   no_status ----------> waiting ----------------> running ----------> no_status
//                           ^                          |
//                           +---- periodic ------------+
//
//             mod                       put on a heap
//   no_status, removed --> modifying -----------------> waiting
//
//                    mod                earlier or later than the heap's key
//   waiting, modified_*, -> modifying ---------------------> modified_earlier, modified_later
//   deleted
//                    del
//   waiting, modified_* --> modifying ---> deleted
//                                                           and what the heap's side makes of them:
//   modified_* ---> moving ---> waiting            deleted ---> removing ---> removed
//
// may_change() below is the same picture as a function. No operation consults it: it is what the
// tests hold the operations against.
#pragma once

#include <array>
#include <cstdint>

namespace verge::detail {

enum class timer_state : std::uint32_t {
  /// Not started yet, or a one-shot that has fired. On no heap. Any owner of a handle may see it.
  /// Next: waiting (add), modifying (mod inserts it).
  no_status,
  /// On its owner's heap, at the place that `when` gives it. Next: running (it is due), modifying
  /// (del, mod), moving (its heap is handed over).
  waiting,
  /// Held by the thread that found it due, under the lock of its heap, until the moment before f is
  /// called. Next: no_status (one-shot, off the heap by then), waiting (periodic, at its new
  /// place).
  running,
  /// Stopped, still on its heap; it will not fire and will be taken off. Next: removing
  /// (any sweep that meets it), removed (the heap is handed over), modifying (mod starts it again).
  deleted,
  /// Held by the thread that takes it off its heap, under that heap's lock. Next: removed.
  removing,
  /// Stopped and off every heap. Next: modifying (mod inserts it).
  removed,
  /// Held by a thread in del or mod, with or without a heap's lock. The times and f are being
  /// written. Next: what the timer shall be - deleted, modified_earlier, modified_later, waiting -
  /// or, if the heap could not grow, what it was.
  modifying,
  /// On its heap at the place of `when`, but due at `nextwhen`, which is earlier: its heap would
  /// look at it too late, so its owner's timer_modified_earliest tells when to look. Next: moving
  /// (any sweep that meets it), modifying (del, mod).
  modified_earlier,
  /// As modified_earlier, but due at the same time or later: its heap will look at it soon enough.
  modified_later,
  /// Held by a sweep under the lock of its heap, on the way to its new place: in the same heap or
  /// in another, and for a moment on none. Next: waiting.
  moving,
};

inline constexpr std::array all_timer_states = {
    timer_state::no_status, timer_state::waiting,          timer_state::running,
    timer_state::deleted,   timer_state::removing,         timer_state::removed,
    timer_state::modifying, timer_state::modified_earlier, timer_state::modified_later,
    timer_state::moving,
};

constexpr const char* name_of(timer_state s) noexcept {
  switch (s) {
    case timer_state::no_status:
      return "no_status";
    case timer_state::waiting:
      return "waiting";
    case timer_state::running:
      return "running";
    case timer_state::deleted:
      return "deleted";
    case timer_state::removing:
      return "removing";
    case timer_state::removed:
      return "removed";
    case timer_state::modifying:
      return "modifying";
    case timer_state::modified_earlier:
      return "modified_earlier";
    case timer_state::modified_later:
      return "modified_later";
    case timer_state::moving:
      return "moving";
  }
  return "not a state";
}

/// Whether a timer in this state has an entry in its owner's heap (moving: in general).
constexpr bool is_on_heap(timer_state s) noexcept {
  return s != timer_state::no_status && s != timer_state::removed;
}

/// Whether some thread has the timer to itself at the moment.
constexpr bool is_held(timer_state s) noexcept {
  return s == timer_state::running || s == timer_state::removing || s == timer_state::modifying ||
         s == timer_state::moving;
}

/// Whether the timer fires if nothing more is done to it: what stop and reset report.
constexpr bool is_pending(timer_state s) noexcept {
  return s == timer_state::waiting || s == timer_state::modified_earlier ||
         s == timer_state::modified_later;
}

enum class timer_operation { add, del, mod, clean, adjust, run, clear_deleted, move };

/// Whether `op` may change a timer's state from `from` to `to` in one step.
constexpr bool may_change(timer_operation op, timer_state from, timer_state to) noexcept {
  using enum timer_state;
  const bool modified = from == modified_earlier || from == modified_later;
  const bool put_right = (modified && to == moving) || (from == moving && to == waiting);
  const bool taken_off = (from == deleted && to == removing) || (from == removing && to == removed);
  switch (op) {
    case timer_operation::add:
      return from == no_status && to == waiting;
    case timer_operation::del:
      return ((from == waiting || modified) && to == modifying) ||
             (from == modifying && to == deleted);
    case timer_operation::mod:
      if (to == modifying) return !is_held(from);
      // no_status and removed: back to where it was, for want of memory.
      return from == modifying && (to == waiting || to == modified_earlier ||
                                   to == modified_later || to == no_status || to == removed);
    case timer_operation::clean:
    case timer_operation::adjust:
    case timer_operation::clear_deleted:
      return put_right || taken_off;
    case timer_operation::run:
      return put_right || taken_off || (from == waiting && to == running) ||
             (from == running && (to == waiting || to == no_status));
    case timer_operation::move:
      return put_right || (from == waiting && to == moving) || (from == deleted && to == removed);
  }
  return false;
}

}  // namespace verge::detail
