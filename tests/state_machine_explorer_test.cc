// SPDX-License-Identifier: Apache-2.0

// The state machine under every schedule: see explorer/explorer.h for how, explorer/checks.h for
// what is checked, explorer/scenarios.h for what is done. Each test prints how many schedules it
// ran.
#include <explorer/explored.h>
#include <explorer/scenarios.h>
#include <gtest/gtest.h>
#include <support/scale.h>

#include <cstdio>
#include <set>

namespace verge::test {
namespace {

class every_schedule : public explored {
 protected:
  /// One scenario of so many, under all of its schedules.
  static void is_right(const char* what, const std::vector<scenario>& list, int preemptions,
                       std::size_t quick, std::size_t usual = 1) {
    expect_right(
        explore_all<explorer_policy<>>(what, thinned(list, one_of(quick, usual)), preemptions));
  }
};

TEST_F(every_schedule, of_every_pair_of_operations_is_right) {
  is_right("pairs", pairs(), any_number, 17);
}

TEST_F(every_schedule, of_three_operations_with_two_preemptions_is_right) {
  is_right("triples", triples(), 2, 11, 5);
}

TEST_F(every_schedule, of_three_handles_with_four_preemptions_is_right) {
  is_right("handle triples", handle_triples(), 4, 11, 5);
}

TEST_F(every_schedule, of_two_processors_is_right) {
  is_right("two processors", two_processors(), any_number, 3);
}

TEST_F(every_schedule, in_which_an_insert_cleans_a_timer_that_is_changed_is_right) {
  is_right("neighbours", neighbours(), any_number, 3);
}

TEST_F(every_schedule, in_which_the_handle_is_destroyed_frees_the_timer_once) {
  is_right("drops", drops(), any_number, 3);
  is_right("busy drops", busy_drops(), 3, 3);
}

TEST_F(every_schedule, in_which_f_stops_or_starts_timers_is_right) {
  is_right("callbacks", callbacks(), any_number, 13);
}

TEST_F(every_schedule, in_which_a_poller_goes_to_sleep_wakes_it_in_time) {
  is_right("sleepers", sleepers(), any_number, 13);
}

TEST_F(every_schedule, in_which_the_heap_cannot_grow_changes_nothing) {
  is_right("without memory", without_memory(), any_number, 1);
}

TEST_F(every_schedule, of_a_scan_that_entries_move_behind_is_right) {
  is_right("layouts", layouts(), 3, 3);
}

TEST_F(every_schedule, of_longer_stories_with_three_preemptions_is_right) {
  is_right("stories", stories(), 3, 11, 3);
}

/// Of schedules that differ by the order of independent steps one is run. A bound on preemptions
/// that none reaches switches that off: then there are many times as many, and not one state more,
/// with all that checks read.
TEST_F(every_schedule, that_is_left_out_has_no_state_of_its_own) {
  std::uint64_t with = 0;
  std::uint64_t without = 0;
  for (const auto& list : {pairs(), two_processors(), neighbours(), drops(), callbacks(),
                           sleepers(), without_memory()}) {
    for (const scenario& s : thinned(list, scale<std::size_t>(40, 150))) {
      EXPECT_EQ((states_of<world<explorer_policy<>>>(s, any_number, with)),
                (states_of<world<explorer_policy<>>>(s, more_than_any_has, without)))
          << s.name;
    }
  }
  std::printf("[ explorer ] %llu schedules in place of %llu\n",
              static_cast<unsigned long long>(with), static_cast<unsigned long long>(without));
  EXPECT_LT(with, without / 10);
}

}  // namespace
}  // namespace verge::test
