// SPDX-License-Identifier: Apache-2.0

// Broken invariants: every cell of the table of docs/state-machine.md that says `bad`, and every
// invalid argument, stop the process with the timer, its state and the operation in the message.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include <support/traced_timer.h>

namespace verge::detail {
namespace {

using enum timer_state;

/// Every cell that says `bad`.
class broken : public state_machine,
               public testing::WithParamInterface<std::tuple<const char*, timer_state>> {};

TEST_P(broken, invariants_stop_the_process_and_say_what_was_found) {
  GTEST_FLAG_SET(death_test_style, "fast");
  const auto [operation, s] = GetParam();
  const std::string which = operation;
  put(s);
  if (which != "add_timer" && !is_on_heap(s)) put_on_heap();
  const auto call = [&] {
    if (which == "add_timer") add_timer(heap_, t_);
    if (which == "adjust_timers") adjust();
    if (which == "run_timer") run_timer(heap_, now);
    if (which == "clear_deleted_timers") clear_deleted_timers(heap_);
    if (which == "move_timers") move_timers(other_, heap_);
  };
  EXPECT_DEATH(call(),
               "verge: " + which + ": timer 0x[0-9a-f]+ is in state " + name_of(s) + " .*when 200");
}

std::string cell_name(const testing::TestParamInfo<std::tuple<const char*, timer_state>>& cell) {
  return std::string(std::get<0>(cell.param)) + "_on_" + name_of(std::get<1>(cell.param));
}

INSTANTIATE_TEST_SUITE_P(add, broken,
                         testing::Combine(testing::Values("add_timer"),
                                          testing::Values(waiting, running, deleted, removing,
                                                          removed, modifying, modified_earlier,
                                                          modified_later, moving)),
                         cell_name);
INSTANTIATE_TEST_SUITE_P(heap, broken,
                         testing::Combine(testing::Values("adjust_timers", "run_timer",
                                                          "clear_deleted_timers", "move_timers"),
                                          testing::Values(no_status, running, removing, removed,
                                                          moving)),
                         cell_name);

TEST_F(state_machine, an_invalid_state_stops_the_process) {
  put(waiting);
  t_.state.set(static_cast<timer_state>(99));
  EXPECT_DEATH(del_timer(t_), "del_timer: timer 0x[0-9a-f]+ is in state not a state \\(99\\)");
  EXPECT_DEATH(reset_timer(heap_, t_, 120), "mod_timer: timer .* not a state");
}

TEST_F(state_machine, times_that_mean_none_and_negative_periods_stop_the_process) {
  put(no_status, 0);
  EXPECT_DEATH(add_timer(heap_, t_), "add_timer: when must be positive.*no_status.*when 0");
  put(no_status, key, 0, -1);
  EXPECT_DEATH(add_timer(heap_, t_), "add_timer: .*period not negative");
  put(no_status);
  EXPECT_DEATH(mod_timer(heap_, t_, 0, 0, t_.f, 0), "mod_timer: when must be positive");
  EXPECT_DEATH(mod_timer(heap_, t_, -5, 0, t_.f, 0), "mod_timer: when must be positive");
  EXPECT_DEATH(mod_timer(heap_, t_, 5, -1, t_.f, 0), "mod_timer: .*period not negative");
  EXPECT_DEATH(reset_timer(heap_, t_, 0), "reset_timer: when must be positive");
}

TEST_F(state_machine, a_timer_on_another_s_heap_stops_the_process) {
  put(waiting);
  t_.owner.set(&other_);
  EXPECT_DEATH(clean_timers(heap_), "clean_timers: the timer is on another's heap: timer 0x");
  EXPECT_DEATH(run_timer(heap_, now), "run_timer: the timer is on another's heap: timer 0x");
  EXPECT_DEATH(adjust(), "adjust_timers: the timer is on another's heap: timer 0x");
  EXPECT_DEATH(clear_deleted_timers(heap_), "clear_deleted_timers: the timer is on another's heap");
  EXPECT_DEATH(move_timers(other_, heap_), "move_timers: the timer is on another's heap");
}
}  // namespace
}  // namespace verge::detail
