// SPDX-License-Identifier: Apache-2.0

// The table of docs/state-machine.md, cell by cell: each operation on a timer in each state,
// single-threaded. The state changes are compared with the cell. The cells that say `bad` are in
// state_machine_bad_test.cc.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <support/traced_timer.h>

namespace verge::detail {
namespace {

using enum timer_state;

/// What the explorers hold each step of an operation against.
TEST(state_machine_changes, are_those_of_the_picture_and_no_others) {
  using pairs = std::set<std::pair<timer_state, timer_state>>;
  const pairs swept{{modified_earlier, moving},
                    {modified_later, moving},
                    {moving, waiting},
                    {deleted, removing},
                    {removing, removed}};
  pairs run = swept;
  run.insert({{waiting, running}, {running, waiting}, {running, no_status}});
  const std::map<timer_operation, pairs> picture{{timer_operation::add, {{no_status, waiting}}},
                                                 {timer_operation::del,
                                                  {{waiting, modifying},
                                                   {modified_earlier, modifying},
                                                   {modified_later, modifying},
                                                   {modifying, deleted}}},
                                                 {timer_operation::mod,
                                                  {{no_status, modifying},
                                                   {waiting, modifying},
                                                   {deleted, modifying},
                                                   {removed, modifying},
                                                   {modified_earlier, modifying},
                                                   {modified_later, modifying},
                                                   {modifying, waiting},
                                                   {modifying, modified_earlier},
                                                   {modifying, modified_later},
                                                   {modifying, no_status},
                                                   {modifying, removed}}},
                                                 {timer_operation::clean, swept},
                                                 {timer_operation::adjust, swept},
                                                 {timer_operation::clear_deleted, swept},
                                                 {timer_operation::run, run},
                                                 {timer_operation::move,
                                                  {{modified_earlier, moving},
                                                   {modified_later, moving},
                                                   {moving, waiting},
                                                   {waiting, moving},
                                                   {deleted, removed}}}};
  const timer_state all[] = {no_status, waiting,   running,          deleted,        removing,
                             removed,   modifying, modified_earlier, modified_later, moving};
  for (const auto& [operation, changes] : picture) {
    for (const timer_state from : all) {
      for (const timer_state to : all) {
        EXPECT_EQ(may_change(operation, from, to), changes.contains({from, to}))
            << "operation " << static_cast<int>(operation) << " from " << name_of(from) << " to "
            << name_of(to);
      }
    }
  }
}

// ---- add ----

TEST_F(state_machine, add_starts_a_new_timer) {
  put(no_status);
  add_timer(heap_, t_);
  EXPECT_EQ(traced::path, "waiting");
  EXPECT_TRUE(on_heap(heap_));
  EXPECT_EQ(traced::references, 1);
  EXPECT_EQ(heap_.timer0_when.get(), key);
  EXPECT_EQ(heap_.num_timers.get(), 1U);
}

// ---- del ----

TEST_F(state_machine, del_of_a_pending_timer_is_true_and_leaves_it_on_the_heap) {
  for (const timer_state s : {waiting, modified_earlier, modified_later}) {
    SCOPED_TRACE(name_of(s));
    heap_.heap.clear();
    heap_.deleted_timers.set(0);
    put(s, key, 150);
    EXPECT_TRUE(del_timer(t_));
    EXPECT_EQ(traced::path, "modifying deleted");
    EXPECT_TRUE(on_heap(heap_));
    EXPECT_EQ(heap_.deleted_timers.get(), 1);
    EXPECT_TRUE(traced::wakes.empty());
  }
}

TEST_F(state_machine, del_of_a_timer_that_is_not_pending_is_false_and_changes_nothing) {
  for (const timer_state s : {no_status, deleted, removing, removed}) {
    SCOPED_TRACE(name_of(s));
    heap_.heap.clear();
    put(s);
    EXPECT_FALSE(del_timer(t_));
    EXPECT_EQ(traced::path, "");
  }
}

TEST_F(state_machine, del_waits_for_one_that_runs_is_moved_or_modified) {
  for (const timer_state s : {running, moving, modifying}) {
    SCOPED_TRACE(name_of(s));
    heap_.heap.clear();
    put(s);
    when_yielding(waiting);
    EXPECT_TRUE(del_timer(t_));
    EXPECT_EQ(traced::yields, 1);
    EXPECT_EQ(traced::path, "modifying deleted");

    heap_.heap.clear();
    put(s);
    when_yielding(no_status);
    EXPECT_FALSE(del_timer(t_));
    EXPECT_EQ(traced::yields, 1);
  }
}

// ---- mod and reset ----

TEST_F(state_machine, mod_of_a_timer_on_no_heap_inserts_it_into_the_callers) {
  for (const timer_state s : {no_status, removed}) {
    SCOPED_TRACE(name_of(s));
    other_.heap.clear();
    put(s);
    EXPECT_FALSE(mod_timer(other_, t_, 120, 30, t_.f, 8));
    EXPECT_EQ(traced::path, "modifying waiting");
    EXPECT_TRUE(on_heap(other_));
    EXPECT_EQ(t_.owner.get(), &other_);
    EXPECT_EQ(std::tuple(t_.when, t_.period, t_.seq), std::tuple(120, 30, 8U));
    EXPECT_EQ(traced::references, 1);
    EXPECT_EQ(traced::wakes, std::vector<std::int64_t>{120});
  }
}

TEST_F(state_machine, mod_of_a_timer_on_a_heap_leaves_its_key_and_says_whether_it_was_pending) {
  for (const timer_state s : {waiting, deleted, modified_earlier, modified_later}) {
    for (const std::int64_t when : {120, 200, 300}) {
      SCOPED_TRACE(std::string(name_of(s)) + " to " + std::to_string(when));
      heap_.heap.clear();
      put(s, key, 150);
      EXPECT_EQ(mod_timer(other_, t_, when, 30, t_.f, 8), s != deleted);
      EXPECT_EQ(traced::path,
                when < key ? "modifying modified_earlier" : "modifying modified_later");
      EXPECT_TRUE(on_heap(heap_));
      EXPECT_EQ(t_.owner.get(), &heap_);
      EXPECT_EQ(std::tuple(t_.when, t_.nextwhen, t_.period, t_.seq), std::tuple(key, when, 30, 8U));
      EXPECT_EQ(heap_.deleted_timers.get(), 0);
      EXPECT_EQ(traced::references, 0);
      EXPECT_EQ(traced::wakes,
                when < key ? std::vector<std::int64_t>{when} : std::vector<std::int64_t>{});
    }
  }
}

TEST_F(state_machine, earlier_means_earlier_than_the_key_and_not_than_the_last_time_given) {
  put(modified_earlier, key, 120);
  EXPECT_TRUE(reset_timer(heap_, t_, 150));  // later than 120, but the heap has it at 200
  EXPECT_EQ(traced::path, "modifying modified_earlier");
  start_over();
  EXPECT_TRUE(reset_timer(heap_, t_, key));
  EXPECT_EQ(traced::path, "modifying modified_later");
}

TEST_F(state_machine, reset_keeps_what_is_not_the_time) {
  put(removed, key, 0, 30);
  EXPECT_FALSE(reset_timer(heap_, t_, 120));
  EXPECT_EQ(std::tuple(t_.when, t_.period, t_.seq), std::tuple(120, 30, 7U));
  EXPECT_TRUE(reset_timer(heap_, t_, 110));
  EXPECT_EQ(std::tuple(t_.nextwhen, t_.period, t_.seq), std::tuple(110, 30, 7U));
}

TEST_F(state_machine, mod_waits_for_the_holder_of_the_timer) {
  for (const timer_state s : {running, removing, modifying, moving}) {
    SCOPED_TRACE(name_of(s));
    heap_.heap.clear();
    put(s);
    when_yielding(waiting);
    EXPECT_TRUE(mod_timer(heap_, t_, 120, 0, t_.f, 8));
    EXPECT_EQ(traced::yields, 1);
    EXPECT_EQ(traced::path, "modifying modified_earlier");
  }
}

// ---- clean ----

TEST_F(state_machine, clean_puts_the_head_in_order) {
  put(deleted);
  clean_timers(heap_);
  EXPECT_EQ(traced::path, "removing removed");
  EXPECT_TRUE(heap_.heap.empty());
  EXPECT_EQ(heap_.deleted_timers.get(), 0);
  EXPECT_EQ(traced::references, -1);
  for (const timer_state s : {modified_earlier, modified_later}) {
    SCOPED_TRACE(name_of(s));
    heap_.heap.clear();
    put(s, key, 150);
    clean_timers(heap_);
    EXPECT_EQ(traced::path, "moving waiting");
    EXPECT_EQ(t_.when, 150);
    EXPECT_TRUE(on_heap(heap_));
    EXPECT_EQ(heap_.timer0_when.get(), 150);
    EXPECT_EQ(traced::references, 0);
  }
}

TEST_F(state_machine, clean_leaves_a_head_in_any_other_state_alone) {
  for (const timer_state s : {no_status, waiting, running, removing, removed, modifying, moving}) {
    SCOPED_TRACE(name_of(s));
    heap_.heap.clear();
    put(s);
    if (!is_on_heap(s)) put_on_heap();
    clean_timers(heap_);
    EXPECT_EQ(traced::path, "");
    EXPECT_EQ(traced::yields, 0);
    EXPECT_TRUE(on_heap(heap_));
  }
}

TEST_F(state_machine, clean_leaves_a_head_alone_that_is_changed_meanwhile) {
  for (const auto& [was, is] : {std::pair{deleted, modified_later}, {modified_later, deleted}}) {
    heap_.heap.clear();
    put(was, key, 150);
    traced::before_swap = [&, to = is] { t_.state.set(to); };
    clean_timers(heap_);
    EXPECT_EQ(traced::path, "");
    EXPECT_TRUE(on_heap(heap_));
    EXPECT_EQ(traced::references, 0);
  }
}

TEST_F(state_machine, the_end_counts_a_timer_that_is_stopped_meanwhile_as_deleted) {
  for (const timer_state is : {deleted, modified_later}) {
    heap_.heap.clear();
    put(waiting, key, 150);
    traced::before_swap = [&] {
      heap_.deleted_timers.set(is == deleted ? 1 : 0);
      t_.state.set(is);
    };
    remove_all_timers(heap_);
    EXPECT_EQ(traced::path, "removing removed");
    EXPECT_EQ(heap_.deleted_timers.get(), 0);
    EXPECT_EQ(traced::references, -1);
    EXPECT_TRUE(heap_.heap.empty());
  }
}

TEST_F(state_machine, run_calls_nothing_that_is_stopped_or_reset_meanwhile) {
  for (const timer_state is : {deleted, modified_later}) {
    heap_.heap.clear();
    put(waiting, now, 150);
    traced::before_swap = [&] {
      heap_.deleted_timers.set(is == deleted ? 1 : 0);
      t_.state.set(is);
    };
    EXPECT_EQ(run_timer(heap_, now), is == deleted ? -1 : 150);
    EXPECT_TRUE(fired.empty());
    EXPECT_EQ(traced::references, is == deleted ? -1 : 0);
  }
}

// ---- adjust, clear deleted, move: over the whole heap ----

class sweeps : public state_machine, public testing::WithParamInterface<const char*> {
 protected:
  void sweep() {
    const std::string which = GetParam();
    if (which == "adjust") adjust();
    if (which == "clear_deleted") clear_deleted_timers(heap_);
    if (which == "move") move_timers(other_, heap_);
  }
  [[nodiscard]] bool moves() const { return std::string(GetParam()) == "move"; }
  traced::timers& target() { return moves() ? other_ : heap_; }
};

TEST_P(sweeps, keep_a_waiting_timer) {
  put(waiting);
  sweep();
  EXPECT_EQ(traced::path, moves() ? "moving waiting" : "");
  EXPECT_TRUE(on_heap(target()));
  EXPECT_EQ(t_.owner.get(), &target());
  EXPECT_EQ(traced::references, 0);
}

TEST_P(sweeps, move_a_modified_timer_to_its_place) {
  for (const timer_state s : {modified_earlier, modified_later}) {
    SCOPED_TRACE(name_of(s));
    heap_.heap.clear();
    other_.heap.clear();
    put(s, key, 150);
    sweep();
    EXPECT_EQ(traced::path, "moving waiting");
    EXPECT_EQ(t_.when, 150);
    EXPECT_TRUE(on_heap(target()));
    EXPECT_EQ(t_.owner.get(), &target());
    EXPECT_EQ(next_when(target()), 150);
    EXPECT_EQ(heap_.timer_modified_earliest.get(), 0);
    EXPECT_EQ(traced::references, 0);
  }
}

TEST_P(sweeps, take_a_deleted_timer_off) {
  put(deleted);
  sweep();
  EXPECT_EQ(traced::path, moves() ? "removed" : "removing removed");
  EXPECT_TRUE(heap_.heap.empty());
  EXPECT_TRUE(other_.heap.empty());
  EXPECT_EQ(heap_.deleted_timers.get(), 0);
  EXPECT_EQ(traced::references, -1);
}

TEST_P(sweeps, wait_for_a_timer_that_is_modified) {
  put(modifying, key, 150);
  when_yielding(modified_earlier);
  sweep();
  EXPECT_EQ(traced::yields, 1);
  EXPECT_EQ(traced::path, "moving waiting");
}

/// Another thread changes it between the look at its state and the swap from that.
TEST_P(sweeps, look_again_at_a_timer_that_is_stopped_or_reset_meanwhile) {
  for (const timer_state was : {waiting, modified_earlier, modified_later, deleted}) {
    for (const timer_state is : {modified_earlier, modified_later, deleted}) {
      if (was == is) continue;
      SCOPED_TRACE(std::string(name_of(was)) + " to " + name_of(is));
      heap_.heap.clear();
      other_.heap.clear();
      put(was, key, 150);
      traced::before_swap = [&] {
        heap_.deleted_timers.set(is == deleted ? 1 : 0);
        t_.state.set(is);
      };
      sweep();
      if (std::exchange(traced::before_swap, nullptr)) continue;  // it swaps nothing
      EXPECT_EQ(heap_.deleted_timers.get(), 0);
      EXPECT_EQ(traced::references, is == deleted ? -1 : 0);
      EXPECT_EQ(on_heap(target()), is != deleted);
      EXPECT_EQ(t_.state.get(), is == deleted ? removed : waiting);
      if (is != deleted) {
        EXPECT_EQ(t_.when, 150);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(each, sweeps, testing::Values("adjust", "clear_deleted", "move"),
                         [](const auto& of) { return std::string(of.param); });

TEST_F(state_machine, adjust_waits_until_the_earliest_modified_time_has_come) {
  put(modified_earlier, key, 150);
  adjust_timers(heap_, 149);
  EXPECT_EQ(traced::path, "");
  adjust_timers(heap_, 150);
  EXPECT_EQ(traced::path, "moving waiting");
}

TEST_F(state_machine, the_last_timer_takes_the_earliest_modified_time_with_it) {
  put(modified_earlier, key, 150);
  EXPECT_TRUE(del_timer(t_));
  EXPECT_EQ(run_timer(heap_, now), -1);
  EXPECT_EQ(next_when(heap_), 0);
}

// ---- run ----

TEST_F(state_machine, run_of_a_timer_that_is_not_due_says_when_it_is) {
  put(waiting);
  EXPECT_EQ(run_timer(heap_, key - 1), key);
  EXPECT_EQ(traced::path, "");
  EXPECT_TRUE(fired.empty());
}

TEST_F(state_machine, run_of_a_one_shot_that_is_due_takes_it_off_and_calls_f) {
  put(waiting);
  EXPECT_EQ(run_timer(heap_, key), 0);
  EXPECT_EQ(traced::path, "running no_status");
  EXPECT_EQ(fired, std::vector<std::uint64_t>{7});
  EXPECT_TRUE(heap_.heap.empty());
  EXPECT_EQ(traced::references, -1);
  EXPECT_EQ(run_timer(heap_, key), -1);
}

TEST_F(state_machine, run_of_a_periodic_timer_that_is_due_keeps_it_on_its_grid) {
  put(waiting, key, 0, 30);
  EXPECT_EQ(run_timer(heap_, 275), 0);
  EXPECT_EQ(traced::path, "running waiting");
  EXPECT_EQ(fired.size(), 1U);
  EXPECT_EQ(t_.when, 290);  // 200, 230, 260 have passed
  EXPECT_TRUE(on_heap(heap_));
  EXPECT_EQ(heap_.timer0_when.get(), 290);
  EXPECT_EQ(traced::references, 0);
}

TEST_F(state_machine, a_period_beyond_the_range_of_the_clock_is_never) {
  put(waiting, key, 0, INT64_MAX);
  EXPECT_EQ(run_timer(heap_, INT64_MAX - 1), 0);
  EXPECT_EQ(t_.when, INT64_MAX);
}

TEST_F(state_machine, run_removes_deleted_heads_and_moves_modified_ones) {
  put(deleted);
  EXPECT_EQ(run_timer(heap_, now), -1);
  EXPECT_EQ(traced::path, "removing removed");
  for (const timer_state s : {modified_earlier, modified_later}) {
    SCOPED_TRACE(name_of(s));
    heap_.heap.clear();
    put(s, key, 150);
    EXPECT_EQ(run_timer(heap_, now), 150);
    EXPECT_EQ(traced::path, "moving waiting");
  }
}

TEST_F(state_machine, run_waits_for_a_timer_that_is_modified) {
  put(modifying);
  when_yielding(deleted);
  EXPECT_EQ(run_timer(heap_, now), -1);
  EXPECT_EQ(traced::yields, 1);
  EXPECT_EQ(traced::path, "removing removed");
}

TEST_F(state_machine, stop_in_the_callback_is_false_for_a_one_shot_and_true_for_a_ticker) {
  static bool answer;
  for (const std::int64_t period : {0, 30}) {
    heap_.heap.clear();
    put(waiting, key, 0, period);
    t_.f = [](traced::timer& t, std::uint64_t, std::int64_t) noexcept { answer = del_timer(t); };
    EXPECT_EQ(run_timer(heap_, key), 0);
    EXPECT_EQ(answer, period != 0);
  }
}

// ---- figures for readers without the lock ----

TEST_F(state_machine, deleted_timers_above_a_quarter_must_be_cleared) {
  heap_.num_timers.set(8);
  heap_.deleted_timers.set(2);
  EXPECT_FALSE(should_clear_deleted(heap_));
  heap_.deleted_timers.set(3);
  EXPECT_TRUE(should_clear_deleted(heap_));
  heap_.deleted_timers.set(-1);  // decremented before it was counted
  EXPECT_FALSE(should_clear_deleted(heap_));
}

TEST_F(state_machine, next_when_is_the_earlier_of_the_root_and_the_earliest_modified) {
  EXPECT_EQ(next_when(heap_), 0);
  heap_.timer0_when.set(200);
  EXPECT_EQ(next_when(heap_), 200);
  heap_.timer_modified_earliest.set(150);
  EXPECT_EQ(next_when(heap_), 150);
  heap_.timer0_when.set(0);
  EXPECT_EQ(next_when(heap_), 150);
}

struct with_atomics {
  template <class T>
  using atomic = std::atomic<T>;
};

TEST(timer_size, leaves_room_on_its_line_for_a_reference_count) {
  EXPECT_LE(sizeof(basic_timer<with_atomics>), 56U);
}

TEST_F(state_machine, the_largest_times_are_times_like_any_other) {
  put(no_status, INT64_MAX);
  add_timer(heap_, t_);
  EXPECT_EQ(next_when(heap_), INT64_MAX);
  EXPECT_TRUE(reset_timer(heap_, t_, 1));
  adjust_timers(heap_, 1);
  EXPECT_EQ(run_timer(heap_, 1), 0);
  EXPECT_EQ(fired.size(), 1U);
}

}  // namespace
}  // namespace verge::detail
