// SPDX-License-Identifier: Apache-2.0
// scenarios: the lists that the explorer goes through.
//
// Times: it is 100. The threads contend for timer 0; up to two others are beside it, so that it is
// the head of its heap or not.
#pragma once

#include <vector>

#include <explorer/scenario.h>

namespace verge::test {

/// The states of timer 0 when no operation is in progress.
inline std::vector<timer_setup> starts() {
  using enum timer_state;
  return {
      {no_status, 150, 0, 0},
      {removed, 150, 0, 0},
      {waiting, 90, 0, 0},
      {waiting, 150, 0, 0},
      {waiting, 90, 0, 40},
      {deleted, 90, 0, 0},
      {deleted, 150, 0, 40},
      {modified_earlier, 200, 90, 0},
      {modified_earlier, 200, 150, 40},
      {modified_later, 80, 150, 0},
      {modified_later, 80, 95, 40},
  };
}

/// The timers beside timer 0: none; one that is due before it; one after it; one whose earlier time
/// has passed, so that adjust must scan.
inline std::vector<std::vector<timer_setup>> companies() {
  using enum timer_state;
  return {{}, {{waiting, 60}}, {{waiting, 250}}, {{modified_earlier, 240, 70}}};
}

/// What the owner of a handle may do to timer 0.
inline std::vector<op> handle_ops(const timer_setup& t) {
  std::vector<op> ops = {{action::del},
                         {action::mod, 0, 50},
                         {action::mod, 0, 120, 40},
                         {action::mod, 0, 300},
                         {action::reset, 0, 85}};
  if (t.start == timer_state::no_status) ops.push_back({action::add});
  return ops;
}

/// What may be done to the heap that timer 0 is on.
inline std::vector<op> heap_ops() {
  return {{action::clean}, {action::adjust}, {action::run}, {action::clear}, {action::move}};
}

/// add is for a timer that no other thread starts; the table defines everything else as misuse.
inline bool makes_sense(const op& a, const op& b) {
  const auto starts_it = [](const op& o) {
    return o.what == action::add || o.what == action::mod || o.what == action::reset;
  };
  if (a.what == action::add) return !starts_it(b);
  if (b.what == action::add) return !starts_it(a);
  return true;
}

inline std::vector<op> joined(std::vector<op> a, const std::vector<op>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline scenario make(timer_setup t, const std::vector<timer_setup>& company,
                     std::vector<std::vector<op>> threads) {
  scenario s;
  s.timers.push_back(t);
  s.timers.insert(s.timers.end(), company.begin(), company.end());
  s.threads = std::move(threads);
  s.name = name_of(s);
  return s;
}

/// Every pair of operations from every start.
inline std::vector<scenario> pairs() {
  std::vector<scenario> all;
  for (const timer_setup& t : starts()) {
    const std::vector<op> ops = joined(handle_ops(t), heap_ops());
    for (const auto& company : companies()) {
      for (std::size_t a = 0; a < ops.size(); ++a) {
        for (std::size_t b = a; b < ops.size(); ++b) {
          if (!makes_sense(ops[a], ops[b])) continue;
          // Moving takes the timers one by one, whatever their order, and takes many steps.
          if (ops[b].what == action::move && !company.empty() && ops[a].when > 50) continue;
          if (ops[b].what == action::move && !company.empty() && company[0].when != 60) continue;
          all.push_back(make(t, company, {{ops[a]}, {ops[b]}}));
        }
      }
    }
  }
  return all;
}

/// Two handles' owners and a processor, or one and two, from every start.
inline std::vector<scenario> triples() {
  using enum timer_state;
  std::vector<scenario> all;
  for (const timer_setup& t : starts()) {
    const std::vector<op> users = handle_ops(t);
    const std::vector<op> owners = joined(heap_ops(), {{action::check}});
    for (const std::vector<timer_setup>& company :
         {std::vector<timer_setup>{}, {{modified_earlier, 240, 70}}}) {
      for (std::size_t a = 0; a < users.size(); ++a) {
        for (std::size_t b = a; b < users.size(); ++b) {
          if (!makes_sense(users[a], users[b])) continue;
          for (const op& o : owners) all.push_back(make(t, company, {{users[a]}, {users[b]}, {o}}));
        }
        for (std::size_t x = 0; x < owners.size(); ++x) {
          for (std::size_t y = x; y < owners.size(); ++y) {
            all.push_back(make(t, company, {{users[a]}, {owners[x]}, {owners[y]}}));
          }
        }
      }
    }
  }
  return all;
}

/// Three threads that modify and stop, from every start.
inline std::vector<scenario> handle_triples() {
  std::vector<scenario> all;
  for (const timer_setup& t : starts()) {
    const std::vector<op> users = handle_ops(t);
    for (std::size_t a = 0; a < users.size(); ++a) {
      for (std::size_t b = a; b < users.size(); ++b) {
        for (std::size_t c = b; c < users.size(); ++c) {
          if (!makes_sense(users[a], users[b]) || !makes_sense(users[b], users[c]) ||
              !makes_sense(users[a], users[c])) {
            continue;
          }
          all.push_back(make(t, {}, {{users[a]}, {users[b]}, {users[c]}}));
        }
      }
    }
  }
  return all;
}

/// Two processors: a timer off the heap is started on both, or on one while the other's timers are
/// moved; a stopped one is taken off here and started there.
inline std::vector<scenario> two_processors() {
  using enum timer_state;
  std::vector<scenario> all;
  const std::vector<timer_setup> company = {{waiting, 60, 0, 0, 1}};
  for (const timer_setup& t : {timer_setup{no_status, 150}, timer_setup{removed, 150},
                               timer_setup{deleted, 90}, timer_setup{waiting, 90}}) {
    const op here = {action::mod, 0, 50, 0, 0};
    const op there = {action::mod, 0, 80, 0, 1};
    all.push_back(make(t, {}, {{here}, {there}}));
    all.push_back(make(t, company, {{here}, {there}}));
    for (const std::size_t heap : {0U, 1U}) {
      all.push_back(make(t, company, {{there}, {{action::run, heap}}}));
      all.push_back(make(t, company, {{there}, {{action::clear, heap}}}));
      all.push_back(make(t, {}, {{there}, {{action::move, heap}}}));
      all.push_back(make(t, {}, {{{action::del}}, {{action::move, heap}}}));
    }
    for (const action off : {action::clean, action::clear, action::run}) {
      all.push_back(make(t, {}, {{{action::del}}, {{off}, there}}));
      all.push_back(make(t, {}, {{{action::del}, there}, {{off}}}));
    }
    all.push_back(make(t, company, {{{action::run, 0}}, {{action::run, 1}}}));
  }
  return all;
}

/// One timer is put on a heap, which cleans the heap's head: timer 1, which another thread stops or
/// resets.
inline std::vector<scenario> neighbours() {
  using enum timer_state;
  std::vector<scenario> all;
  for (const timer_setup& t : {timer_setup{no_status, 150}, timer_setup{removed, 150}}) {
    for (const timer_setup& head :
         {timer_setup{waiting, 90}, timer_setup{deleted, 90}, timer_setup{deleted, 90, 0, 40},
          timer_setup{modified_earlier, 200, 90}, timer_setup{modified_later, 80, 150}}) {
      for (const op& put : {op{action::mod, 0, 50}, op{action::reset, 0, 120}, op{action::add}}) {
        if (put.what == action::add && t.start != no_status) continue;
        for (const op& o : {op{action::del, 1}, op{action::mod, 1, 60}, op{action::mod, 1, 300, 40},
                            op{action::reset, 1, 130}, op{action::drop, 1}}) {
          all.push_back(make(t, {head}, {{put}, {o}}));
        }
      }
    }
  }
  return all;
}

/// The handle is destroyed while the timer may be on the heap, or its f running.
inline std::vector<scenario> drops() {
  std::vector<scenario> all;
  for (const timer_setup& t : starts()) {
    for (const auto& company : companies()) {
      for (const op& o : heap_ops()) {
        if (o.what == action::move && !company.empty()) continue;
        all.push_back(make(t, company, {{{action::drop}}, {o}}));
      }
    }
  }
  return all;
}

/// As drops, with more operations.
inline std::vector<scenario> busy_drops() {
  std::vector<scenario> all;
  for (const timer_setup& t : starts()) {
    for (const op& o : heap_ops()) {
      all.push_back(make(t, {}, {{{action::reset, 0, 85}, {action::drop}}, {o}}));
      for (const action other : {action::clean, action::run, action::clear, action::move}) {
        all.push_back(make(t, {}, {{{action::drop}}, {o}, {{other}}}));
      }
    }
  }
  return all;
}

/// f stops or resets its own timer, or starts another one on the heap that it came from.
inline std::vector<scenario> callbacks() {
  using enum timer_state;
  std::vector<scenario> all;
  for (const std::int64_t period : {0, 40}) {
    for (const callback f :
         {callback::stops_itself, callback::resets_itself, callback::starts_timer_1}) {
      const timer_setup t{waiting, 90, 0, period, 0, f};
      for (const timer_state other : {no_status, deleted, waiting}) {
        const std::vector<timer_setup> company = {{other, 110}};
        all.push_back(make(t, company, {{{action::run}}}));
        for (const op& o : handle_ops(t)) all.push_back(make(t, company, {{{action::run}}, {o}}));
      }
    }
  }
  return all;
}

/// A poller goes to sleep while another thread makes a timer earlier.
inline std::vector<scenario> sleepers() {
  std::vector<scenario> all;
  for (const timer_setup& t : starts()) {
    const std::vector<op> ops =
        joined(handle_ops(t), {{action::clean}, {action::adjust}, {action::clear}});
    for (const auto& company : companies()) {
      for (const op& o : ops) all.push_back(make(t, company, {{{action::sleep}}, {o}}));
    }
  }
  return all;
}

/// The heap cannot grow: timers on no heap are unchanged.
inline std::vector<scenario> without_memory() {
  using enum timer_state;
  std::vector<scenario> all;
  for (const timer_setup& t :
       {timer_setup{no_status, 150}, timer_setup{removed, 150}, timer_setup{waiting, 150},
        timer_setup{deleted, 150}, timer_setup{modified_earlier, 200, 150}}) {
    for (const op& other :
         {op{action::del}, op{action::mod, 0, 80, 0, 1}, op{action::reset, 0, 120, 0, 1},
          op{action::run}, op{action::clear}, op{action::move}}) {
      scenario s = make(t, {}, {{{action::mod, 0, 50, 0, 1}}, {other}});
      s.no_memory = true;
      s.name = name_of(s);
      all.push_back(s);
    }
  }
  return all;
}

/// Ten timers, arranged so that removing entry 5 moves the last one up to index 1, which the scan
/// has passed, and that one has an earlier time to be found (Go #47762).
inline std::vector<scenario> layouts() {
  using enum timer_state;
  std::vector<timer_setup> timers = {{waiting, 110}, {waiting, 400},
                                     {waiting, 120}, {waiting, 130},
                                     {waiting, 140}, {modified_earlier, 500, 95},
                                     {waiting, 510}, {waiting, 520},
                                     {waiting, 530}, {modified_earlier, 200, 90}};
  std::vector<scenario> all;
  for (const timer_state fifth : {modified_earlier, deleted}) {
    timers[5] = {fifth, 500, fifth == deleted ? 0 : 95};
    const timer_setup first = timers[0];
    const std::vector<timer_setup> rest(timers.begin() + 1, timers.end());
    all.push_back(make(first, rest, {{{action::adjust}}}));
    all.push_back(make(first, rest, {{{action::clear}}}));
    for (const std::size_t other : {0U, 1U, 5U, 9U}) {
      all.push_back(make(first, rest, {{{action::adjust}}, {{action::mod, other, 50}}}));
      all.push_back(make(first, rest, {{{action::adjust}}, {{action::del, other}}}));
      all.push_back(make(first, rest, {{{action::clear}}, {{action::mod, other, 50}}}));
    }
  }
  return all;
}

/// Longer sequences: a timer is started, stopped and restarted while its processor runs.
inline std::vector<scenario> stories() {
  using enum timer_state;
  std::vector<scenario> all;
  const std::vector<std::vector<op>> users = {
      {{action::del}, {action::reset, 0, 85}},
      {{action::reset, 0, 85}, {action::del}},
      {{action::mod, 0, 300}, {action::mod, 0, 50}},
      {{action::mod, 0, 50}, {action::mod, 0, 300}},
      {{action::del}, {action::mod, 0, 120}, {action::del}},
  };
  const std::vector<std::vector<op>> owners = {
      {{action::check}, {action::check}},
      {{action::run}, {action::adjust}, {action::run}},
      {{action::clear}, {action::move}, {action::check, 1}},
      {{action::move}, {action::move, 1}},
  };
  for (const timer_setup& t : starts()) {
    for (const auto& user : users) {
      for (const auto& owner : owners) {
        all.push_back(make(t, {{modified_earlier, 240, 70}}, {user, owner}));
      }
    }
  }
  return all;
}

}  // namespace verge::test
