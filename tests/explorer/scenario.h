// SPDX-License-Identifier: Apache-2.0
// scenario: the operations of a few threads on a few timers, as data.
//
// There are always the heaps of two processors. A timer is brought to its start state by
// operations, so every start state is reachable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <engine/ten_states/timer_state.h>

namespace verge::test {

using detail::timer_state;

/// What a timer's f does besides counting.
enum class callback { nothing, stops_itself, resets_itself, starts_timer_1 };

struct timer_setup {
  timer_state start = timer_state::waiting;
  /// The heap's key.
  std::int64_t when = 0;
  /// In modified_earlier and modified_later: when it is really due.
  std::int64_t nextwhen = 0;
  std::int64_t period = 0;
  std::size_t heap = 0;
  callback f = callback::nothing;
};

enum class action {
  add,
  del,
  mod,
  reset,
  drop,  // del, then the handle is destroyed
  clean,
  adjust,
  run,
  check,  // what a scheduler does: adjust, then run all that is due, then clear if many are deleted
  clear,
  move,
  sleep,  // what a poller does: announces how long it will sleep, and checks once more
};

struct op {
  action what;
  /// Which timer; for those on a heap: which heap. move: from that heap to the other.
  std::size_t target = 0;
  std::int64_t when = 0;
  std::int64_t period = 0;
  /// The processor that add, mod and reset run on.
  std::size_t own = 0;
};

struct scenario {
  std::string name;
  std::vector<timer_setup> timers;
  std::vector<std::vector<op>> threads;
  std::int64_t now = 100;
  /// Heaps cannot grow while the threads run.
  bool no_memory = false;
};

inline bool is_on_timer(action a) {
  return a == action::add || a == action::del || a == action::mod || a == action::reset ||
         a == action::drop;
}

inline void append(std::string& text, char mark, auto number) {
  text += mark;
  text += std::to_string(number);
}

inline std::string to_text(const op& o) {
  static constexpr const char* names[] = {"add",    "del", "mod",   "reset", "drop", "clean",
                                          "adjust", "run", "check", "clear", "move", "sleep"};
  std::string text = names[static_cast<int>(o.what)];
  if (o.target != 0) text += std::to_string(o.target);
  if (o.when != 0) append(text, '@', o.when);
  if (o.period != 0) append(text, '/', o.period);
  if (o.own != 0) append(text, '^', o.own);
  return text;
}

/// The name is complete, so that a schedule can be replayed from it.
inline std::string name_of(const scenario& s) {
  std::string text;
  for (const timer_setup& t : s.timers) {
    text += detail::name_of(t.start);
    append(text, '@', t.when);
    if (t.nextwhen != 0) append(text, '>', t.nextwhen);
    if (t.period != 0) append(text, '/', t.period);
    if (t.heap != 0) append(text, '^', t.heap);
    if (t.f != callback::nothing) append(text, '!', static_cast<int>(t.f));
    text += ",";
  }
  for (const auto& thread : s.threads) {
    text += &thread == &s.threads.front() ? " " : "|";
    for (const op& o : thread) {
      if (&o != &thread.front()) text += ";";
      text += to_text(o);
    }
  }
  if (s.no_memory) text += " without memory";
  return text;
}

}  // namespace verge::test
