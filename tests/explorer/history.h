// SPDX-License-Identifier: Apache-2.0
// history: the operations on a timer, and whether they are linearizable.
//
// For its users a timer is simple: it is pending or not; stop and reset return which and change it;
// firing requires it to be pending and due. That is timer_model, which is sequential. An execution
// is correct if all events of a timer (every call with its result, every firing, and its final
// state) can be put in one order in which the model gives the same results, and in which an event
// that ended before another began comes before it (linearizability). A stop that returns true and
// is followed by a firing has no such order, nor has a second firing of one arming, nor a firing
// before its time, nor a lost reset.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <clock/arithmetic.h>

namespace verge::test {

/// How a timer is armed, if it is.
struct arming {
  bool pending = false;
  std::int64_t when = 0;
  std::int64_t period = 0;
  std::uint64_t seq = 0;

  /// How a timer that is not pending was armed does not matter, except for what reset keeps.
  friend bool operator==(const arming& a, const arming& b) {
    return a.pending == b.pending &&
           (!a.pending || (a.when == b.when && a.period == b.period && a.seq == b.seq));
  }
};

struct event {
  enum kind { add, stop, mod, reset, fire, refused };
  kind what = add;
  /// The steps between which it happened.
  std::size_t begin = 0;
  std::size_t end = 0;
  /// mod, add: all. reset: when. fire: seq, and `when` is the time it was found due at.
  arming with;
  /// What stop, mod and reset returned.
  bool answer = false;
};

/// A timer as its users see it. Each function returns whether the event is possible.
struct timer_model {
  arming now;

  bool apply(const event& e) {
    switch (e.what) {
      case event::add:
        if (now.pending) return false;
        now = e.with;
        return true;
      case event::stop:
        if (e.answer != now.pending) return false;
        now.pending = false;
        return true;
      case event::mod:
        if (e.answer != now.pending) return false;
        now = e.with;
        return true;
      case event::reset:
        if (e.answer != now.pending) return false;
        now.pending = true;
        now.when = e.with.when;
        return true;
      case event::fire:
        if (!now.pending || now.when > e.with.when || now.seq != e.with.seq) return false;
        if (now.period > 0) {
          now.when = detail::next_period(now.when, now.period, e.with.when);
        } else {
          now.pending = false;
        }
        return true;
      case event::refused:
        return true;  // there was no memory, and nothing happened
    }
    return false;
  }
};

/// Whether the events can be put in an order that leads the model from `start` to `end`.
inline bool explains(const std::vector<event>& events, timer_model from, const arming& end,
                     std::uint32_t done = 0) {
  if (done + 1 == (1U << events.size())) return from.now == end;
  // The next event must have begun before any remaining event has ended.
  std::size_t first_end = SIZE_MAX;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if ((done >> i & 1U) == 0) first_end = std::min(first_end, events[i].end);
  }
  for (std::size_t i = 0; i < events.size(); ++i) {
    if ((done >> i & 1U) != 0 || events[i].begin > first_end) continue;
    timer_model next = from;
    if (next.apply(events[i]) && explains(events, next, end, done | 1U << i)) return true;
  }
  return false;
}

inline std::string to_text(const arming& a) {
  if (!a.pending) return "not pending";
  return "pending at " + std::to_string(a.when) +
         (a.period != 0 ? " every " + std::to_string(a.period) : "") + " (seq " +
         std::to_string(a.seq) + ")";
}

inline std::string to_text(const event& e) {
  static constexpr const char* names[] = {"add", "stop", "mod", "reset", "fire", "refused mod"};
  std::string text = names[e.what];
  if (e.what == event::fire) {
    text += " (seq " + std::to_string(e.with.seq) + ") at " + std::to_string(e.with.when);
  } else if (e.what != event::stop && e.what != event::refused) {
    text += " at " + std::to_string(e.with.when);
  }
  if (e.what == event::stop || e.what == event::mod || e.what == event::reset) {
    text += e.answer ? " -> true" : " -> false";
  }
  return text + " [steps " + std::to_string(e.begin) + "-" + std::to_string(e.end) + "]";
}

}  // namespace verge::test
