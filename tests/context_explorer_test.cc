// SPDX-License-Identifier: Apache-2.0

// Contexts under every schedule: explorer/context_world.h has what is checked.

#include <explorer/context_world.h>
#include <explorer/explored.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace verge::test {
namespace {

using enum scope_action;
using scenarios = std::vector<scope_scenario>;
using shape = std::vector<scope_setup>;

template <scope_mutant Mutation = scope_mutant::none>
exploration explore_contexts(const char* what, const scenarios& list, int preemptions) {
  return explore_each<context_world<Mutation>>(what, list, preemptions,
                                               [](const auto& s) { return to_text(s); });
}

/// The trees of the scenarios.
std::vector<shape> shapes() {
  return {
      {{.source = true, .listens = true}},
      {{.channel = true, .timer = true}},
      {{.source = true, .timer = true, .listens = true}, {.parent = 0, .source = true}},
      {{.channel = true}, {.parent = 0, .channel = true, .timer = true}},
      {{.timer = true}, {.parent = 0, .source = true, .listens = true}},
      {{}, {.parent = 0}, {.parent = 1, .source = true}},
      {{.listens = true}, {.parent = 0}, {.parent = 0, .timer = true}},
  };
}

/// All operations on a tree.
std::vector<scope_op> operations(const shape& tree) {
  std::vector<scope_op> list;
  bool listens = false;
  for (std::size_t i = 0; i < tree.size(); ++i) {
    for (const scope_action a : {cancel, drop, child, wait, callback}) list.push_back({a, i});
    if (tree[i].channel) list.push_back({look, i});
    if (tree[i].timer) list.push_back({fire, i});
    listens = listens || tree[i].listens;
  }
  if (listens) list.push_back({stop});
  return list;
}

scenarios pairs() {
  scenarios list;
  for (const shape& tree : shapes()) {
    const auto all = operations(tree);
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (std::size_t j = i; j < all.size(); ++j) list.push_back({tree, {{all[i]}, {all[j]}}});
    }
  }
  return list;
}

scenarios triples() {
  scenarios list;
  for (const shape& tree : shapes()) {
    const auto all = operations(tree);
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (std::size_t j = i; j < all.size(); ++j) {
        for (std::size_t k = j; k < all.size(); ++k) {
          list.push_back({tree, {{all[i]}, {all[j]}, {all[k]}}});
        }
      }
    }
  }
  return list;
}

/// Contexts are created, and a stop comes at any moment.
scenarios listeners() {
  scenarios list;
  for (const auto& first : {std::vector<scope_op>{{listen, 0}}, {{listen, 0}, {cancel, 0}}}) {
    for (const auto& second : {scope_op{stop}, {cancel, 0}, {drop, 0}}) {
      list.push_back({{{}}, {first, {second}}});
      list.push_back({{{}}, {first, {{stop}}, {second}}});
    }
  }
  return list;
}

class every_context_schedule : public explored {
 protected:
  /// One scenario of so many, under all of its schedules.
  static void is_right(const char* what, const scenarios& list, int preemptions, std::size_t quick,
                       std::size_t usual = 1) {
    expect_right(explore_contexts(what, thinned(list, one_of(quick, usual)), preemptions));
  }
};

TEST_F(every_context_schedule, of_every_pair_of_operations_is_right) {
  is_right("pairs", pairs(), 4, 11, 4);
}

TEST_F(every_context_schedule, of_three_operations_with_two_preemptions_is_right) {
  is_right("triples", triples(), 2, 53, 5);
}

TEST_F(every_context_schedule, of_a_stop_while_a_context_is_made_is_right) {
  is_right("listeners", listeners(), 3, 1);
}

/// Each fault must be found, or the tests above prove nothing.
class context_faults : public every_context_schedule {
 protected:
  template <scope_mutant Mutation>
  static void is_found() {
    if (explore_contexts<Mutation>("a fault", pairs(), 3).failed) return;
    if (explore_contexts<Mutation>("a fault", listeners(), 3).failed) return;
    EXPECT_TRUE(explore_contexts<Mutation>("a fault", triples(), 2).failed) << "not noticed";
  }
};

TEST_F(context_faults, a_walk_without_a_share_of_the_memory_is_found) {
  is_found<scope_mutant::walks_without_share>();
}
TEST_F(context_faults, a_state_that_is_done_before_the_channel_is_closed_is_found) {
  is_found<scope_mutant::done_before_closed>();
}
TEST_F(context_faults, a_child_that_is_finished_before_it_is_listed_and_stays_there_is_found) {
  is_found<scope_mutant::no_second_look>();
}
TEST_F(context_faults, a_second_cancel_that_returns_too_early_is_found) {
  is_found<scope_mutant::returns_before_settled>();
}
TEST_F(context_faults, a_second_cancel_that_returns_before_the_channel_is_closed_is_found) {
  is_found<scope_mutant::returns_while_closing>();
}
TEST_F(context_faults, a_scope_that_stays_on_its_parents_list_is_found) {
  is_found<scope_mutant::forgets_to_leave>();
}
TEST_F(context_faults, a_timer_whose_share_is_dropped_while_it_fires_is_found) {
  is_found<scope_mutant::disarm_drops_always>();
}
TEST_F(context_faults, a_stop_callback_whose_share_is_dropped_while_it_runs_is_found) {
  is_found<scope_mutant::listener_without_claim>();
}
TEST_F(context_faults, a_stop_callback_that_is_destroyed_while_it_is_constructed_is_found) {
  is_found<scope_mutant::stops_while_registering>();
}

}  // namespace
}  // namespace verge::test
