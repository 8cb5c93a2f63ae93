// SPDX-License-Identifier: Apache-2.0

// The calls of one timer under every schedule: explorer/call_world.h has what is checked.

#include <explorer/call_world.h>
#include <explorer/explored.h>
#include <gtest/gtest.h>

#include <vector>

namespace verge::test {
namespace {

using enum call_action;
using scenarios = std::vector<call_scenario>;

template <call_mutant Mutation = call_mutant::none>
exploration explore_calls(const char* what, const scenarios& list, int preemptions = 3) {
  return explore_each<call_world<Mutation>>(what, list, preemptions,
                                            [](const auto& s) { return to_text(s); });
}

/// Firings from one or two threads, run by one or two workers, beside a handle's destructor.
scenarios lives_of_a_timer() {
  return {
      {{{fire}, {work}}},
      {{{fire, fire}, {work}}},
      {{{fire, fire, fire}, {work}, {work}}},
      {{{fire}, {fire}, {work}, {work}}},
      {{{fire, fire}, {fire}, {work}}},
      {{{fire}, {work}, {destroy}}},
      {{{fire, fire}, {work}, {destroy}}},
      {{{fire, fire}, {work}, {work}, {destroy}}},
      {{{fire, destroy}, {work}, {work}}},
  };
}

class every_call_schedule : public explored {};

TEST_F(every_call_schedule, makes_each_call_once_and_one_after_the_other) {
  expect_right(explore_calls("calls", lives_of_a_timer()));
}

/// Each fault must be found, or the test above proves nothing.
TEST_F(every_call_schedule, finds_calls_that_overlap) {
  EXPECT_TRUE(
      explore_calls<call_mutant::queues_while_running>("a fault", lives_of_a_timer()).failed);
}
TEST_F(every_call_schedule, finds_a_call_that_is_lost) {
  EXPECT_TRUE(explore_calls<call_mutant::forgets_the_next>("a fault", lives_of_a_timer()).failed);
}
TEST_F(every_call_schedule, finds_a_call_that_begins_after_the_end) {
  EXPECT_TRUE(explore_calls<call_mutant::begins_after_end>("a fault", lives_of_a_timer()).failed);
}
TEST_F(every_call_schedule, finds_a_destructor_that_is_never_woken) {
  EXPECT_TRUE(explore_calls<call_mutant::never_wakes>("a fault", lives_of_a_timer()).failed);
}

}  // namespace
}  // namespace verge::test
