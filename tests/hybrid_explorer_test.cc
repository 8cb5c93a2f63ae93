// SPDX-License-Identifier: Apache-2.0

// The hybrid engine's timers under every schedule: explorer/hybrid_world.h has what is checked.

#include <explorer/explored.h>
#include <explorer/hybrid_world.h>
#include <gtest/gtest.h>
#include <support/scale.h>

#include <cstdio>
#include <set>
#include <string>
#include <vector>

namespace verge::test {
namespace {

using enum hybrid_action;
using scenarios = std::vector<hybrid_scenario>;

template <hybrid_mutant Mutation = hybrid_mutant::none, std::size_t Many = 0>
exploration explore_hybrid(const char* what, const scenarios& list, int preemptions) {
  return explore_each<hybrid_world<Mutation, Many>>(what, list, preemptions,
                                                    [](const auto& s) { return to_text(s); });
}

/// The states of timer 0.
std::vector<hybrid_setup> starts() {
  return {
      {},                             // never started
      {.key = 90},                    // due
      {.key = 150},                   // not due
      {.key = 150, .stopped = true},  // its entry is left, and is reached
      {.key = 90, .stopped = true},   // its entry is left, and due
      {.key = 80, .when = 150, .stopped = true},
      {.key = 150, .stopped = true, .kept = true},  // and it has kept its reference
      {.key = 90, .stopped = true, .kept = true},
      {.key = 80, .when = 150},           // postponed: its entry is reached and moved
      {.key = 80, .when = 90},            // postponed, and still due
      {.key = 90, .period = 40},          // ticks
      {.key = 150, .when = 90, .on = 0},  // two entries, one stale
      {.key = 90, .on = 1},
  };
}

/// What the owner of a handle may do to timer 0. A stop keeps the timer's reference, or does not:
/// see stops().
std::vector<hybrid_op> handle_ops() {
  return {{stop_keeping},        {reset, 0, 50},  {reset, 0, 85},     {reset, 0, 120},
          {reset, 0, 140, 0, 1}, {reset, 0, 300}, {reset, 0, 120, 40}};
}

/// What may be done to the wheel that timer 0 is on.
std::vector<hybrid_op> wheel_ops() { return {{check}, {sweep}, {move}, {look}}; }

std::vector<hybrid_op> joined(std::vector<hybrid_op> a, const std::vector<hybrid_op>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

scenarios pairs() {
  scenarios list;
  const auto all = joined(handle_ops(), wheel_ops());
  for (const auto& start : starts()) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (std::size_t j = i; j < all.size(); ++j) {
        list.push_back({{start}, {{all[i]}, {all[j]}}});
      }
    }
  }
  return list;
}

scenarios triples() {
  scenarios list;
  const auto all = joined(handle_ops(), wheel_ops());
  for (const auto& start : starts()) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (std::size_t j = i; j < all.size(); ++j) {
        for (std::size_t k = j; k < all.size(); ++k) {
          list.push_back({{start}, {{all[i]}, {all[j]}, {all[k]}}});
        }
      }
    }
  }
  return list;
}

/// A stop that drops the reference, against and after everything else.
scenarios stops() {
  scenarios list;
  const auto all = joined(handle_ops(), wheel_ops());
  for (const auto& start : starts()) {
    for (const auto& a : all) {
      list.push_back({{start}, {{{stop}}, {a}}});
      for (const auto& b : all) {
        list.push_back({{start}, {{{stop}, a}, {b}}});
        list.push_back({{start}, {{a, {stop}}, {b}}});
        list.push_back({{start}, {{{stop}}, {a}, {b}}});
      }
    }
  }
  return list;
}

/// Two operations in a row against one: what has returned must count.
scenarios rows() {
  scenarios list;
  const auto all = joined(handle_ops(), wheel_ops());
  for (const auto& start : starts()) {
    for (const auto& a : all) {
      for (const auto& b : handle_ops()) {
        for (const auto& c : all) list.push_back({{start}, {{a, b}, {c}}});
      }
    }
  }
  return list;
}

/// Times that differ by less than the resolution of a hint, around what is due now, around a key,
/// and around the next hint.
scenarios fractions() {
  scenarios list;
  constexpr double bit = 1.0 / 16;
  std::vector<hybrid_op> ops = wheel_ops();
  for (const double when : {100 - bit, 100 + bit, 149 + bit, 150 - bit, 150 + bit, 151 - bit}) {
    ops.push_back({reset, 0, when});
  }
  ops.push_back({stop_keeping});
  ops.push_back({reset, 0, 150 - bit, 0, 1});
  ops.push_back({reset, 0, 100 + bit, 40});
  for (const auto& start :
       {hybrid_setup{.key = 150 + 2 * bit}, hybrid_setup{.key = 100 + bit},
        hybrid_setup{.key = 100 - bit}, hybrid_setup{.key = 99, .when = 100 + bit},
        hybrid_setup{.key = 149 + bit, .when = 150 + bit},
        hybrid_setup{.key = 150 + bit, .stopped = true, .kept = true},
        hybrid_setup{.key = 100 - bit, .period = 1}}) {
    for (std::size_t i = 0; i < ops.size(); ++i) {
      for (std::size_t j = i; j < ops.size(); ++j) {
        list.push_back({{start}, {{ops[i]}, {ops[j]}}});
        list.push_back({{start}, {{{sleep}}, {ops[i]}, {ops[j]}}});
      }
      for (const auto& b : ops) list.push_back({{start}, {{{check}, b}, {ops[i]}}});
    }
  }
  // The poller of a scenario looks at wheel 0.
  std::erase_if(list, [](const hybrid_scenario& s) {
    bool elsewhere = false;
    for (const auto& of : s.threads) {
      elsewhere = elsewhere || of.front().own != 0 || of.front().what == hybrid_action::move;
    }
    return elsewhere && s.threads.front().front().what == hybrid_action::sleep;
  });
  return list;
}

/// A timer whose tokens begin anew, and checks that run out of steps.
scenarios limits() {
  scenarios list;
  const auto all = joined(handle_ops(), wheel_ops());
  for (auto start : starts()) {
    start.wraps = true;
    for (const auto& a : all) {
      for (const auto& b : all) list.push_back({{start}, {{{reset, 0, 140}, a}, {b}}});
    }
  }
  for (const auto& start : starts()) {
    for (const auto& a : all) {
      list.push_back({{start, {.key = 150}, {.key = 85}}, {{{check}}, {a}}, 1});
      for (const auto& b : handle_ops()) list.push_back({{start}, {{{check}}, {a}, {b}}, 1});
    }
  }
  return list;
}

/// Four threads.
scenarios crowds() {
  scenarios list;
  const std::vector<hybrid_op> ops{{stop_keeping}, {reset, 0, 85}, {reset, 0, 140}, {reset, 0, 300},
                                   {check},        {sweep},        {move}};
  for (const auto& start : starts()) {
    for (std::size_t i = 0; i < ops.size(); ++i) {
      for (std::size_t j = i; j < ops.size(); ++j) {
        list.push_back({{start}, {{{check}}, {{reset, 0, 85}}, {ops[i]}, {ops[j]}}});
      }
    }
  }
  return list;
}

/// The handle is destroyed during any other operation.
scenarios drops() {
  scenarios list;
  for (const auto& start : starts()) {
    for (const auto& a : wheel_ops()) {
      list.push_back({{start}, {{{drop}}, {a}}});
      for (const auto& b : wheel_ops()) list.push_back({{start}, {{{drop}}, {a, b}}});
      for (const auto& b : wheel_ops()) list.push_back({{start}, {{{drop}}, {a}, {b}}});
      for (const auto& last : {hybrid_op{drop}, {detach}}) {
        list.push_back({{start}, {{last}, {a}}});
        for (const auto& b : handle_ops()) list.push_back({{start}, {{b, last}, {a}}});
      }
    }
  }
  return list;
}

/// The node is reused for a new timer, whatever its last one left behind.
scenarios lives() {
  scenarios list;
  const auto all = joined(handle_ops(), wheel_ops());
  for (const auto& last : {hybrid_setup{.key = 90, .stopped = true, .freed = true},
                           hybrid_setup{.key = 150, .stopped = true, .freed = true},
                           hybrid_setup{.key = 80, .when = 150, .stopped = true, .freed = true},
                           hybrid_setup{.key = 150, .when = 90, .stopped = true, .freed = true},
                           hybrid_setup{.key = 90, .stopped = true, .freed = true, .blank = true},
                           hybrid_setup{.key = 150, .stopped = true, .freed = true, .blank = true},
                           hybrid_setup{.key = 90, .period = 40, .stopped = true, .freed = true}}) {
    for (const auto& start : {hybrid_op{hybrid_action::start, 0, 85},
                              {hybrid_action::start, 0, 120},
                              {hybrid_action::start, 0, 300, 0, 1},
                              {hybrid_action::start, 0, 85, 40}}) {
      for (const auto& a : wheel_ops()) {
        list.push_back({{last}, {{start}, {a}}});
        for (const auto& b : all) list.push_back({{last}, {{start, b}, {a}}});
        for (const auto& b : wheel_ops()) {
          list.push_back({{last}, {{start}, {a, b}}});
          list.push_back({{last}, {{start, {drop}}, {a}, {b}}});
        }
      }
    }
  }
  return list;
}

/// Several timers: what is due fires in order.
scenarios companies() {
  scenarios list;
  for (const auto& start : starts()) {
    for (const auto& other :
         {hybrid_setup{.key = 85}, hybrid_setup{.key = 95}, hybrid_setup{.key = 70, .when = 92}}) {
      for (const auto& a : joined(handle_ops(), wheel_ops())) {
        list.push_back({{start, other}, {{a}, {{check}}}});
        list.push_back({{start, other}, {{{reset, 1, 84, 0, 1}}, {a, {check}}}});
      }
    }
  }
  return list;
}

/// A ticker whose resets are serialized by a lock: to its period, and to another.
scenarios tickers() {
  scenarios list;
  std::vector<hybrid_op> resets;
  for (const double when : {50, 85, 120, 140, 300}) {
    resets.push_back({reset_alone, 0, when, 40});
  }
  resets.push_back({reset_alone, 0, 120, 70});
  resets.push_back({reset_alone, 0, 140, 40, 1});
  resets.push_back({reset_alone, 0, 120});
  const auto others = joined(wheel_ops(), {{check, 1}});
  for (const auto& start :
       {hybrid_setup{.key = 90, .period = 40}, hybrid_setup{.key = 150, .period = 40},
        hybrid_setup{.key = 150, .period = 40, .stopped = true},
        hybrid_setup{.key = 90, .period = 40, .on = 1}, hybrid_setup{}}) {
    for (const auto& a : resets) {
      if (start.on == 0 && a.own == 0) {  // where the poller of the scenario looks
        list.push_back({{start}, {{{sleep}}, {a}}});
        for (const auto& b : {hybrid_op{check}, {look}}) {
          list.push_back({{start}, {{{sleep}}, {a}, {b}}});
        }
      }
      for (const auto& b : others) {
        list.push_back({{start}, {{b}, {a}}});
        for (const auto& c : joined(resets, {{stop}})) list.push_back({{start}, {{b}, {a, c}}});
        for (const auto& c : wheel_ops()) {
          list.push_back({{start}, {{b}, {a}, {c}}});
          list.push_back({{start}, {{b, c}, {{reset_alone, 0, 150, 40}, a}}});
        }
      }
    }
  }
  return list;
}

/// A precise timer: its entry comes up ahead of its time, and once more when it is due.
scenarios precise() {
  scenarios list;
  const auto all = joined(handle_ops(), wheel_ops());
  for (const auto& start :
       {hybrid_setup{.key = 150, .precise = true}, hybrid_setup{.key = 110, .precise = true},
        hybrid_setup{.key = 90, .precise = true}, hybrid_setup{.precise = true},
        hybrid_setup{.key = 110, .when = 150, .precise = true},
        hybrid_setup{.key = 110, .stopped = true, .precise = true},
        hybrid_setup{.key = 90, .period = 15, .precise = true},
        hybrid_setup{.key = 90, .period = 40, .precise = true}}) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (std::size_t j = i; j < all.size(); ++j) list.push_back({{start}, {{all[i]}, {all[j]}}});
      for (const auto& b : handle_ops()) {
        list.push_back({{start}, {{{check}, b}, {all[i]}}});
        list.push_back({{start}, {{{check}}, {b}, {all[i]}}});
      }
    }
    list.push_back({{start}, {{{check}, {reset, 0, 105}}, {{look}}}});
    for (const auto& b : {hybrid_op{check}, {look}, {reset, 0, 105}, {reset, 0, 115}}) {
      list.push_back({{start}, {{{sleep}}, {b}}});
      for (const auto& c : handle_ops()) {
        if (c.own == 0) list.push_back({{start}, {{{sleep}}, {b}, {c}}});
      }
    }
  }
  return list;
}

/// The runtime ends while other threads use the timer.
scenarios ends() {
  scenarios list;
  for (const auto& start : starts()) {
    for (const auto& a : joined(handle_ops(), {{drop}})) {
      list.push_back({{start}, {{{end}, {end, 1}}, {a}}});
      if (a.what == drop) continue;
      for (const auto& b : joined(handle_ops(), {{drop}})) {
        list.push_back({{start}, {{{end}, {end, 1}}, {a, b}}});
        if (b.what != drop) list.push_back({{start}, {{{end}, {end, 1}}, {a}, {b}}});
      }
    }
  }
  return list;
}

scenarios sleepers() {
  scenarios list;
  for (const auto& start : starts()) {
    for (const auto& other : {hybrid_setup{.key = 200}, hybrid_setup{}}) {
      for (const auto& a : handle_ops()) {
        if (a.own != 0) continue;  // the poller of the scenario looks at wheel 0
        if (start.on != 0) continue;
        list.push_back({{start, other}, {{{sleep}}, {a}}});
        for (const auto& b : {hybrid_op{check}, {look}}) {
          list.push_back({{start, other}, {{{sleep}}, {a}, {b}}});
        }
        for (const auto& b : handle_ops()) {
          if (b.own == 0) list.push_back({{start, other}, {{{sleep}}, {a}, {b}}});
        }
      }
    }
  }
  return list;
}

/// Two timers are started while a poller goes to sleep. The thread that starts the first of them
/// may lose its core at any step.
scenarios sleepers_of_two() {
  scenarios list;
  const hybrid_setup blank{.key = 90, .stopped = true, .freed = true, .blank = true};
  const hybrid_setup left{.key = 300, .stopped = true, .freed = true};
  for (const double first : {120, 150, 170}) {
    for (const double second : {120, 150, 170}) {
      for (const auto& setup : {blank, left}) {
        list.push_back(
            {{setup, setup},
             {{{sleep}}, {{hybrid_action::start, 0, first}}, {{hybrid_action::start, 1, second}}}});
      }
    }
  }
  return list;
}

class every_hybrid_schedule : public explored {
 protected:
  /// One scenario of so many, under all of its schedules.
  static void is_right(const char* what, const scenarios& list, int preemptions, std::size_t quick,
                       std::size_t usual = 1) {
    expect_right(explore_hybrid(what, thinned(list, one_of(quick, usual)), preemptions));
  }
};

TEST_F(every_hybrid_schedule, of_every_pair_of_operations_is_right) {
  is_right("pairs", pairs(), any_number, 3);
}

/// Of schedules that differ by the order of independent steps one is run. A bound on preemptions
/// that none reaches switches that off: then there are several times as many, and not one state
/// more, with all that checks read.
TEST_F(every_hybrid_schedule, that_is_left_out_has_no_state_of_its_own) {
  std::uint64_t with = 0;
  std::uint64_t without = 0;
  for (const hybrid_scenario& s : thinned(pairs(), scale<std::size_t>(20, 100))) {
    EXPECT_EQ((states_of<hybrid_world<>>(s, any_number, with)),
              (states_of<hybrid_world<>>(s, more_than_any_has, without)))
        << to_text(s);
  }
  std::printf("[ explorer ] %llu schedules in place of %llu\n",
              static_cast<unsigned long long>(with), static_cast<unsigned long long>(without));
  EXPECT_LT(with, without / 3);
}

TEST_F(every_hybrid_schedule, of_three_operations_with_two_preemptions_is_right) {
  is_right("triples", triples(), 2, 11, 5);
}

TEST_F(every_hybrid_schedule, of_a_stop_that_keeps_nothing_is_right) {
  is_right("stops", stops(), 2, 11);
}

TEST_F(every_hybrid_schedule, of_two_operations_in_a_row_is_right) {
  is_right("rows", rows(), 3, 11, 5);
}

TEST_F(every_hybrid_schedule, of_times_that_a_hint_does_not_tell_apart_is_right) {
  is_right("fractions", fractions(), 3, 11, 4);
}

TEST_F(every_hybrid_schedule, in_which_tokens_begin_anew_or_steps_run_out_is_right) {
  is_right("limits", limits(), 2, 11);
}

TEST_F(every_hybrid_schedule, of_four_threads_with_one_preemption_is_right) {
  is_right("crowds", crowds(), 1, 3);
}

/// Among few timers entries are made for the time that is asked for.
TEST_F(every_hybrid_schedule, among_few_timers_is_right) {
  constexpr std::size_t few = 1000;
  const auto run = [](const char* what, const scenarios& list, std::size_t usual) {
    expect_right(
        explore_hybrid<hybrid_mutant::none, few>(what, thinned(list, one_of(11, usual)), 2));
  };
  run("few, pairs", pairs(), 1);
  run("few, rows", rows(), 5);
  run("few, sleepers", sleepers(), 5);
}

TEST_F(every_hybrid_schedule, in_which_the_handle_is_destroyed_frees_the_timer_once) {
  is_right("drops", drops(), 3, 3);
}

TEST_F(every_hybrid_schedule, in_which_a_node_gets_a_new_timer_is_right) {
  is_right("lives", lives(), 3, 3);
}

TEST_F(every_hybrid_schedule, of_several_timers_fires_them_in_order) {
  is_right("companies", companies(), 3, 11);
}

TEST_F(every_hybrid_schedule, of_a_ticker_that_one_thread_resets_is_right) {
  is_right("tickers", tickers(), 3, 11);
}

TEST_F(every_hybrid_schedule, of_a_precise_timer_fires_it_when_it_is_due) {
  is_right("precise", precise(), 2, 5);
}

TEST_F(every_hybrid_schedule, in_which_the_runtime_ends_removes_the_timer_once) {
  is_right("ends", ends(), 2, 11);
}

TEST_F(every_hybrid_schedule, in_which_a_poller_goes_to_sleep_wakes_it_in_time) {
  is_right("sleepers", sleepers(), 3, 11, 5);
}

TEST_F(every_hybrid_schedule,
       in_which_a_thread_loses_its_core_before_it_wakes_the_poller_is_right) {
  is_right("sleepers of two", sleepers_of_two(), 3, 3);
}

/// Each fault must be found, or the tests above prove nothing.
class hybrid_faults : public every_hybrid_schedule {
 protected:
  /// Looks first where the fault would show.
  template <hybrid_mutant Mutation>
  static void is_found(const scenarios& likely = pairs()) {
    if (explore_hybrid<Mutation>("a fault", likely, 3).failed) return;
    for (const scenarios& list : {pairs(), rows(), sleepers(), lives()}) {
      if (explore_hybrid<Mutation>("a fault", list, 3).failed) return;
    }
    EXPECT_TRUE(explore_hybrid<Mutation>("a fault", triples(), 3).failed) << "it was not found";
  }
};

TEST_F(hybrid_faults, a_reset_that_does_not_check_again_is_found) {
  is_found<hybrid_mutant::blind_hint>();
}
TEST_F(hybrid_faults, a_reset_of_a_ticker_that_does_not_check_again_is_found) {
  EXPECT_TRUE(explore_hybrid<hybrid_mutant::blind_hint>("a fault", tickers(), 3).failed);
}
TEST_F(hybrid_faults, a_reset_of_a_ticker_that_does_not_check_the_period_is_found) {
  EXPECT_TRUE(explore_hybrid<hybrid_mutant::keeps_period>("a fault", tickers(), 3).failed);
}
TEST_F(hybrid_faults, an_end_that_removes_a_concurrently_stopped_timer_is_found) {
  EXPECT_TRUE(explore_hybrid<hybrid_mutant::ends_what_it_saw>("a fault", ends(), 3).failed);
}
TEST_F(hybrid_faults, a_stop_that_ignores_entering_is_found) {
  is_found<hybrid_mutant::stop_ignores_enter>();
}
TEST_F(hybrid_faults, an_entry_that_is_moved_without_entering_is_found) {
  is_found<hybrid_mutant::moves_without_entering>();
}
TEST_F(hybrid_faults, a_firing_of_what_is_no_longer_due_is_found) {
  is_found<hybrid_mutant::fires_what_it_saw>();
}
TEST_F(hybrid_faults, an_earliest_timer_that_wakes_no_thread_is_found) {
  is_found<hybrid_mutant::no_wake>(sleepers());
}
TEST_F(hybrid_faults, a_start_that_relies_on_the_wake_up_of_another_is_found) {
  const auto found =
      explore_hybrid<hybrid_mutant::trusts_the_first>("a fault", sleepers_of_two(), 3);
  EXPECT_TRUE(found.failed);
}
TEST_F(hybrid_faults, a_moved_entry_that_becomes_the_earliest_and_wakes_no_thread_is_found) {
  scenarios postponed = sleepers();  // those in which an entry is moved
  std::erase_if(postponed, [](const hybrid_scenario& s) {
    return s.timers.front().when == 0 || s.timers.front().stopped;
  });
  EXPECT_TRUE(explore_hybrid<hybrid_mutant::no_wake_after_move>("a fault", postponed, 3).failed);
}
TEST_F(hybrid_faults, an_entry_for_the_time_that_was_replaced_is_found) {
  is_found<hybrid_mutant::leaves_late>();
}
TEST_F(hybrid_faults, an_entry_that_is_dropped_without_changing_the_word_is_found) {
  is_found<hybrid_mutant::drops_in_silence>();
}
TEST_F(hybrid_faults, an_entry_that_is_dropped_without_the_reference_that_was_kept_is_found) {
  is_found<hybrid_mutant::forgets_what_is_kept>();
}
TEST_F(hybrid_faults, a_reset_that_takes_a_reference_beside_the_one_that_was_kept_is_found) {
  is_found<hybrid_mutant::takes_another>();
}
TEST_F(hybrid_faults, a_timer_that_reuses_an_entry_that_is_too_late_is_found) {
  is_found<hybrid_mutant::reuses_any_entry>();
}

TEST_F(hybrid_faults, a_precise_timer_that_fires_when_it_comes_up_is_found) {
  EXPECT_TRUE(explore_hybrid<hybrid_mutant::fires_at_its_key>("a fault", precise(), 2).failed);
}
TEST_F(hybrid_faults, a_tag_that_is_ahead_of_the_entry_is_found) {
  EXPECT_TRUE(explore_hybrid<hybrid_mutant::tags_ahead_of_key>("a fault", precise(), 2).failed);
}

}  // namespace
}  // namespace verge::test
