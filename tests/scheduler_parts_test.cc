// SPDX-License-Identifier: Apache-2.0

// The parts of the live scheduler, each alone: what is shared between processors, which of them are
// idle, the turn to poll, what the monitor sees, the jobs there are. What they do together is in
// scheduler_test.cc, monitor_test.cc and stuck_test.cc.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <sched/bit_set.h>
#include <sched/global_queue.h>
#include <sched/idle_set.h>
#include <sched/job_list.h>
#include <sched/poll_turn.h>
#include <sched/processor_set.h>
#include <sched/progress_watch.h>
#include <sched/spare_processors.h>
#include <sched/stall_watch.h>
#include <verge/clock.h>
#include <verge/stall.h>

namespace verge::detail {
namespace {

constexpr std::int64_t ms = 1'000'000;

// ---- The global queue

TEST(global_queue, gives_what_has_fired_before_the_rest_and_both_in_order) {
  std::array<runnable, 4> r{};
  global_queue q;
  EXPECT_TRUE(q.empty());
  q.push_locked(r[0]);
  q.push_fired_locked(r[1]);
  q.push_locked(r[2]);
  q.push_fired_locked(r[3]);
  EXPECT_FALSE(q.empty());
  for (const int i : {1, 3, 0, 2}) EXPECT_EQ(q.pop_locked(), &r[static_cast<std::size_t>(i)]);
  EXPECT_EQ(q.pop_locked(), nullptr);
  EXPECT_TRUE(q.empty());
  EXPECT_EQ(q.taken_locked(), 4U) << "an empty queue has nothing to take";
}

TEST(global_queue, gives_each_processor_its_share_and_one_to_run) {
  std::array<runnable, 9> r{};
  global_queue q;
  run_queue local;
  for (runnable& one : r) q.push_locked(one);
  EXPECT_EQ(q.take_share_locked(local, 4), &r[0]);
  EXPECT_EQ(local.size(), 2U) << "a quarter of the eight that were left";
  EXPECT_EQ(local.take(), &r[1]);
  EXPECT_EQ(q.pop_locked(), &r[3]);
}

TEST(global_queue, keeps_what_does_not_fit_into_the_local_queue) {
  std::vector<runnable> r(1000);
  global_queue q;
  run_queue local;
  for (runnable& one : r) q.push_locked(one);
  EXPECT_NE(q.take_share_locked(local, 1), nullptr);
  EXPECT_EQ(local.size(), run_queue::capacity / 2);
  std::size_t left = 0;
  while (q.pop_locked() != nullptr) ++left;
  EXPECT_EQ(left, r.size() - 1 - run_queue::capacity / 2);
}

TEST(global_queue, fills_half_of_what_is_free_in_the_local_queue) {
  std::vector<runnable> r(1000);
  global_queue q;
  run_queue local;
  constexpr std::uint32_t there = 90;
  for (std::uint32_t i = 0; i < there; ++i) EXPECT_TRUE(local.push(r[i]));
  for (std::size_t i = there; i < r.size(); ++i) q.push_locked(r[i]);
  EXPECT_EQ(q.take_share_locked(local, 1), &r[there]);
  EXPECT_EQ(local.size(), there + (run_queue::capacity - there) / 2);
}

TEST(global_queue, watches_one_at_a_time_until_it_is_taken) {
  std::array<runnable, 33> r{};
  global_queue q;
  std::size_t n = 0;
  const auto push_until = [&](std::size_t count) {
    while (n < count) {
      EXPECT_FALSE(q.wants_watch_locked()) << "after " << n;
      q.push_locked(r[n++]);
    }
  };
  push_until(16);
  EXPECT_TRUE(q.wants_watch_locked()) << "every sixteenth";
  q.watch_last_locked(5);
  push_until(32);
  EXPECT_FALSE(q.wants_watch_locked()) << "the other is there yet";
  for (int i = 0; i < 15; ++i) q.pop_locked();
  EXPECT_EQ(q.taken_since_locked(), 0) << "it is the next";
  q.pop_locked();
  EXPECT_EQ(q.taken_since_locked(), 5);
  EXPECT_EQ(q.taken_since_locked(), 0) << "said once";
  EXPECT_TRUE(q.wants_watch_locked());
  while (q.pop_locked() != nullptr) {
  }
  EXPECT_FALSE(q.wants_watch_locked()) << "it is empty";
}

TEST(global_queue, counts_what_is_appended_like_what_is_pushed) {
  std::array<runnable, 40> r{};
  global_queue q;
  ready_list list;
  for (std::size_t i = 0; i < 15; ++i) list.push_back(r[i]);
  q.append_locked(std::move(list));
  EXPECT_FALSE(q.empty());
  EXPECT_FALSE(q.wants_watch_locked());
  q.push_fired_locked(r[20]);
  EXPECT_FALSE(q.wants_watch_locked()) << "that is not measured";
  q.push_locked(r[15]);
  EXPECT_TRUE(q.wants_watch_locked());
  q.watch_last_locked(3);
  for (std::size_t i = 0; i < 16; ++i) {
    q.pop_locked();
    EXPECT_EQ(q.taken_since_locked(), 0) << i;
  }
  EXPECT_EQ(q.pop_locked(), &r[15]);
  EXPECT_EQ(q.taken_since_locked(), 3);
  EXPECT_EQ(q.taken_locked(), 17U);
  EXPECT_TRUE(q.empty());
}

TEST(global_queue, shares_what_has_fired_too_and_counts_all_of_it_as_taken) {
  std::array<runnable, 8> r{};
  global_queue q;
  run_queue local;
  EXPECT_EQ(q.take_share_locked(local, 1), nullptr);
  for (std::size_t i = 0; i < 4; ++i) q.push_locked(r[i]);
  for (std::size_t i = 4; i < 8; ++i) q.push_fired_locked(r[i]);
  EXPECT_EQ(q.take_share_locked(local, 3), &r[4]);
  EXPECT_EQ(local.size(), 2U) << "a third of the seven that were left";
  EXPECT_EQ(q.taken_locked(), 3U);
  EXPECT_EQ(q.take_share_locked(local, 1), &r[7]);
  EXPECT_EQ(local.size(), 6U) << "all of them";
  EXPECT_TRUE(q.empty());
  EXPECT_EQ(q.taken_locked(), 8U);
  for (const std::size_t i : {5U, 6U, 0U, 1U, 2U, 3U}) EXPECT_EQ(local.take(), &r[i]);
}

TEST(global_queue, has_only_new_tasks_if_the_first_is_one_and_nothing_has_fired) {
  std::array<runnable, 3> r{};
  global_queue q;
  EXPECT_TRUE(q.only_new_tasks_locked()) << "there is nothing else";
  q.push_fired_locked(r[0]);
  EXPECT_FALSE(q.only_new_tasks_locked());
  q.pop_locked();
  q.push_locked(r[1]);
  EXPECT_FALSE(q.only_new_tasks_locked()) << "it is not one that was spawned";
}

// ---- What is idle

class an_idle_set : public testing::Test {
 protected:
  an_idle_set() { all_.make_up_to(4); }

  processor_set all_{4};
  idle_set idle_;
};

TEST_F(an_idle_set, finds_the_idle_processor_with_the_lowest_number) {
  EXPECT_EQ(idle_.first_locked(), processor_set::max_processors) << "none is idle";
  idle_.add_locked(all_[3]);
  idle_.add_locked(all_[1]);
  EXPECT_EQ(idle_.first_locked(), 1U);
  EXPECT_EQ(idle_.count(), 2U);
  idle_.remove_locked(all_[1]);
  EXPECT_EQ(idle_.first_locked(), 3U);
  EXPECT_FALSE(idle_.contains_locked(1));
}

TEST_F(an_idle_set, asks_for_a_worker_if_a_processor_is_idle_and_none_spins) {
  using enum idle_set::wakeup;
  EXPECT_EQ(idle_.claim_wakeup(), none) << "no processor is idle";
  idle_.add_locked(all_[0]);
  EXPECT_EQ(idle_.claim_wakeup(), claimed);
  EXPECT_EQ(idle_.claim_wakeup(), coming) << "the worker that was asked for spins";
  idle_.unclaim_wakeup();
  EXPECT_EQ(idle_.claim_wakeup(), claimed);
}

TEST_F(an_idle_set, counts_the_workers_that_spin_and_how_often_one_has_stopped) {
  worker w(reinterpret_cast<live_scheduler&>(all_));  // NOLINT: it is not used
  const std::uint32_t before = idle_.stops();
  idle_.start_spinning(w);
  idle_.start_spinning(w);
  EXPECT_EQ(idle_.spinning(), 2U);
  EXPECT_EQ(idle_.stops(), before);
  EXPECT_FALSE(idle_.stop_spinning(w)) << "another spins";
  EXPECT_TRUE(idle_.stop_spinning(w)) << "it was the last";
  EXPECT_EQ(idle_.spinning(), 0U);
  EXPECT_EQ(idle_.stops(), before + 2);
}

TEST_F(an_idle_set, gives_the_worker_that_was_parked_last_and_sends_all_of_them_home) {
  worker one(reinterpret_cast<live_scheduler&>(all_));    // NOLINT: it is not used
  worker two(reinterpret_cast<live_scheduler&>(all_));    // NOLINT
  worker three(reinterpret_cast<live_scheduler&>(all_));  // NOLINT
  EXPECT_EQ(idle_.unpark_locked(), nullptr);
  for (worker* w : {&one, &two, &three}) {
    w->given = &all_[0];
    idle_.park_locked(*w);
    EXPECT_EQ(w->given, nullptr) << "it has yet to be given one";
  }
  EXPECT_EQ(idle_.unpark_locked(), &three);
  idle_.dismiss_workers_locked();
  EXPECT_EQ(idle_.unpark_locked(), nullptr);
  for (worker* w : {&one, &two}) EXPECT_TRUE(w->parked.wait_until(1)) << "it was woken";
  EXPECT_FALSE(three.parked.wait_until(1));
}

TEST_F(an_idle_set, counts_the_worker_that_the_monitor_starts_and_each_that_was_not_started) {
  using enum idle_set::wakeup;
  idle_.add_locked(all_[0]);
  EXPECT_EQ(idle_.claim_wakeup(), claimed);
  idle_.claim_another();
  EXPECT_EQ(idle_.spinning(), 2U);
  const std::uint32_t before = idle_.stops();
  idle_.unclaim_wakeup();
  EXPECT_EQ(idle_.spinning(), 1U);
  EXPECT_EQ(idle_.stops(), before + 1) << "the monitor sees that something has moved";
  EXPECT_EQ(idle_.claim_wakeup(), coming);
  worker w(reinterpret_cast<live_scheduler&>(all_));  // NOLINT: it is not used
  w.spinning = true;
  EXPECT_TRUE(idle_.stop_spinning(w));
  EXPECT_FALSE(w.spinning);
  idle_.start_spinning(w);
  EXPECT_TRUE(w.spinning);
}

// ---- Sets of numbers, and of processors

TEST(bit_set, has_each_number_and_finds_the_lowest) {
  constexpr std::size_t n = 192;
  bit_set<n> set;
  EXPECT_EQ(set.first(), n);
  EXPECT_TRUE(set.none());
  EXPECT_FALSE(set.any());
  for (std::size_t i = n; i-- > 0;) {
    set.set(i);
    EXPECT_EQ(set.first(), i);
    EXPECT_TRUE(set.test(i));
    EXPECT_TRUE(set.any());
  }
  for (std::size_t i = 0; i < n; ++i) {
    EXPECT_EQ(set.first(), i);
    set.reset(i);
    EXPECT_FALSE(set.test(i));
  }
  EXPECT_TRUE(set.none());
  for (const bool in : {true, true, false, false, true}) {
    set.set(64, in);
    EXPECT_EQ(set.test(64), in);
    EXPECT_FALSE(set.test(0));
    EXPECT_FALSE(set.test(128));
  }
}

TEST(processor_set, makes_those_that_are_missing_and_calls_for_spare_ones_too) {
  EXPECT_THROW(processor_set{0}, std::invalid_argument);
  EXPECT_THROW(processor_set{processor_set::max_processors + 1}, std::invalid_argument);
  EXPECT_NO_THROW(processor_set{processor_set::max_processors});
  processor_set all{1};
  all.make_up_to(2);
  const processor* const first = &all[0];
  all.make_up_to(4);
  all.make_up_to(3);
  EXPECT_EQ(all.made(), 4U);
  EXPECT_EQ(&all[0], first) << "it stays where it is";
  EXPECT_EQ(all.in_use(), 1U);
  all.use_locked(4);
  EXPECT_EQ(all.in_use(), 4U);
  processor& spare = all.make_spare_locked();
  EXPECT_EQ(&all.spare(0), &spare);
  processor& next = all.make_spare_locked();
  EXPECT_EQ(&all.spare(1), &next);
  std::vector<unsigned> ids;
  all.for_each([&](const processor& p) {
    ids.push_back(p.id);
    EXPECT_EQ(processor_set::is_spare(p), ids.size() > 4);
    EXPECT_EQ(p.retired, ids.size() <= 4) << "until it is taken into use";
  });
  constexpr unsigned many = processor_set::max_processors;
  EXPECT_EQ(ids, (std::vector<unsigned>{0, 1, 2, 3, many, many + 1}));
  EXPECT_FALSE(all.any_retires());
  all[3].retiring = true;
  EXPECT_TRUE(all.any_retires());
}

// ---- The turn to poll

TEST(poll_turn, belongs_to_one_worker_which_says_until_when_it_sleeps) {
  poll_turn turn;
  EXPECT_TRUE(turn.no_worker_sleeps());
  ASSERT_TRUE(turn.try_begin());
  EXPECT_FALSE(turn.try_begin());
  EXPECT_EQ(turn.until(), std::numeric_limits<std::int64_t>::max())
      << "until it has looked at the timers it may sleep forever";
  EXPECT_FALSE(turn.ends_by(7));
  turn.sleeps_until(7);
  EXPECT_TRUE(turn.ends_by(7));
  EXPECT_FALSE(turn.ends_by(6));
  turn.end(9);
  EXPECT_TRUE(turn.no_worker_sleeps());
  EXPECT_FALSE(turn.ends_by(7)) << "no worker sleeps";
  EXPECT_EQ(turn.last_look(), 9);
  EXPECT_TRUE(turn.try_begin());
}

// ---- What the monitor sees

class what_the_monitor_sees : public testing::Test {
 protected:
  what_the_monitor_sees() { all_.make_up_to(2); }

  processor_set all_{2};
  progress_watch seen_;
  runnable waiting_;
};

TEST_F(what_the_monitor_sees, a_processor_that_looks_for_work_moves) {
  all_[0].count_look();
  EXPECT_TRUE(seen_.look(all_, 1 * ms).moved);
  EXPECT_FALSE(seen_.is_still(all_[0]));
  EXPECT_TRUE(seen_.is_still(all_[1]));
  EXPECT_FALSE(seen_.look(all_, 2 * ms).moved) << "not since the last look";
}

TEST_F(what_the_monitor_sees, a_processor_has_moved_lately_for_a_millisecond_after_a_look_at_it) {
  constexpr std::int64_t begin = 1'000'000 * ms;
  seen_.look(all_, begin);
  EXPECT_FALSE(seen_.moved_lately(all_[0], begin)) << "it never has";
  all_[0].count_look();
  seen_.look(all_, begin + 1);
  EXPECT_TRUE(seen_.moved_lately(all_[0], begin + 1));
  EXPECT_FALSE(seen_.moved_lately(all_[1], begin + 1));
  seen_.look(all_, begin + ms);
  EXPECT_TRUE(seen_.moved_lately(all_[0], begin + ms)) << "though not since the last look";
  EXPECT_FALSE(seen_.moved_lately(all_[0], begin + ms + 1));
}

TEST_F(what_the_monitor_sees, a_spare_processor_moves_but_does_not_come_round) {
  all_.make_spare_locked().count_look();
  const auto found = seen_.look(all_, 1 * ms);
  EXPECT_TRUE(found.moved);
  EXPECT_FALSE(found.came_round);
}

TEST_F(what_the_monitor_sees, a_queue_is_left_behind_after_ten_milliseconds) {
  all_[0].count_look();
  ASSERT_TRUE(all_[0].queue.push(waiting_));
  EXPECT_FALSE(seen_.look(all_, 1 * ms).left_behind);
  EXPECT_FALSE(seen_.look(all_, 11 * ms).left_behind);
  EXPECT_TRUE(seen_.look(all_, 12 * ms).left_behind);
  all_[0].count_look();
  EXPECT_FALSE(seen_.look(all_, 13 * ms).left_behind);
}

// ---- Spare processors

TEST(spare_processors, are_made_up_to_the_limit_and_used_again) {
  processor_set all{1};
  spare_processors spares;
  spares.limit_to_locked(2);
  processor* const first = spares.take_locked(all);
  processor* const second = spares.take_locked(all);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(spares.take_locked(all), nullptr);
  spares.let_begin_tasks_locked(*first);
  EXPECT_EQ(spares.for_tasks_locked(), 1U);
  spares.put_locked(*first);
  EXPECT_EQ(spares.for_tasks_locked(), 0U) << "one at rest begins none";
  EXPECT_EQ(spares.take_locked(all), first);
  EXPECT_EQ(all.spares_made(), 2U);
}

TEST(spare_processors, stop_when_one_that_was_stuck_comes_back) {
  processor_set all{1};
  spare_processors spares;
  spares.came_back();
  EXPECT_FALSE(spares.all_stuck());
  spares.found_stuck(stuckness::all);
  spares.found_stuck(stuckness::some);
  EXPECT_EQ(spares.stuck(), stuckness::all) << "it does not become less by another finding";
  const processor& spare = *spares.take_locked(all);
  EXPECT_FALSE(spares.others_came_back(spare));
  spares.came_back();
  EXPECT_TRUE(spares.others_came_back(spare));
  EXPECT_FALSE(spares.all_stuck());
  EXPECT_FALSE(spares.others_came_back(*spares.take_locked(all))) << "not since that came up";
}

TEST(spare_processors, come_up_one_at_a_time) {
  processor_set all{1};
  spare_processors spares;
  processor& spare = *spares.take_locked(all);
  EXPECT_FALSE(spares.one_is_coming_up());
  spares.brought_up(spare, spare.tick.load());
  EXPECT_TRUE(spares.one_is_coming_up()) << "it has yet to look for work";
  spare.count_look();
  EXPECT_FALSE(spares.one_is_coming_up());
  EXPECT_EQ(spares.used(), 1U);
}

TEST(spare_processors, rest_with_the_lowest_number_first_and_are_no_more_than_there_may_be) {
  processor_set all{1};
  spare_processors spares;
  EXPECT_EQ(spares.limit_locked(), processor_set::max_spares);
  spares.limit_to_locked(processor_set::max_spares + 1);
  EXPECT_EQ(spares.limit_locked(), processor_set::max_spares);
  spares.limit_to_locked(2);
  EXPECT_FALSE(spares.any_at_work_locked(all));
  processor& first = *spares.take_locked(all);
  processor& second = *spares.take_locked(all);
  EXPECT_TRUE(spares.any_at_work_locked(all));
  spares.put_locked(second);
  EXPECT_TRUE(spares.any_at_work_locked(all));
  EXPECT_TRUE(spares.at_rest_locked().test(1));
  spares.put_locked(first);
  EXPECT_FALSE(spares.any_at_work_locked(all));
  EXPECT_EQ(spares.for_tasks_locked(), 0U) << "neither could begin tasks";
  EXPECT_EQ(spares.take_locked(all), &first);
  EXPECT_EQ(spares.take_locked(all), &second);
  spares.let_begin_tasks_locked(second);
  EXPECT_TRUE(second.begins_tasks);
  spares.put_locked(second);
  EXPECT_FALSE(second.begins_tasks);
}

TEST(spare_processors, answer_once_for_what_was_left_behind) {
  spare_processors spares;
  EXPECT_FALSE(spares.answer_left_behind());
  spares.report_left_behind();
  spares.report_left_behind();
  EXPECT_TRUE(spares.answer_left_behind());
  EXPECT_FALSE(spares.answer_left_behind());
}

/// Those that compute become more ever more slowly: after the n-th the next waits 10 ms * 2^n.
TEST(spare_processors, that_compute_become_more_twice_as_slowly_each_time) {
  processor_set all{1};
  spare_processors spares;
  progress_watch seen;
  const auto is_short = [&](std::int64_t now) {
    return spares.processor_time_is_short(all, spares.at_rest_locked(), seen, now);
  };
  constexpr std::int64_t begin = 1'000'000 * ms;
  seen.look(all, begin);
  EXPECT_FALSE(is_short(begin)) << "there are none";
  std::int64_t now = begin;
  for (int n = 1; n <= 18; ++n) {
    SCOPED_TRACE(n);
    processor& p = *spares.take_locked(all);
    p.thread = ::gettid();  // which computes
    seen.look(all, now);
    const std::int64_t wait = 10 * ms << std::min(n, 16);
    EXPECT_TRUE(is_short(now));
    EXPECT_TRUE(is_short(now + wait - 1));
    EXPECT_FALSE(is_short(now + wait));
    now += wait;
  }
  // One that moves, or rests, or blocks does not count.
  for (unsigned i = 0; i < 18; ++i) all.spare(i).count_look();
  seen.look(all, now);
  EXPECT_FALSE(is_short(now));
  seen.look(all, now);
  EXPECT_TRUE(is_short(now)) << "they are more again";
  for (unsigned i = 1; i < 18; ++i) spares.put_locked(all.spare(i));
  EXPECT_TRUE(is_short(now + 20 * ms - 1)) << "one is left";
  EXPECT_FALSE(is_short(now + 20 * ms));
  all.spare(0).thread = std::numeric_limits<pid_t>::max();
  EXPECT_FALSE(is_short(now)) << "it does not compute";
}

// ---- Stalls

class stalls : public testing::Test {
 protected:
  stalls() {
    watch_.set(10 * ms, [this](const stall& s) { reported_.push_back(s.unreported); });
    // Of no thread of this process: they cannot be asked, and are reported without an answer.
    for (worker* w : {&one_, &two_}) w->thread_id = std::numeric_limits<pid_t>::max();
  }
  void look(std::int64_t now) {
    watch_.look_locked(one_, now);
    watch_.look_locked(two_, now);
    watch_.finish_look(now);
  }
  static void next_turn(worker& w) {
    w.end_turn();
    w.begin_turn();
  }

  processor_set all_{1};
  worker one_{reinterpret_cast<live_scheduler&>(all_)};  // NOLINT: it is not used
  worker two_{reinterpret_cast<live_scheduler&>(all_)};  // NOLINT
  stall_watch watch_;
  std::vector<std::uint64_t> reported_;
};

TEST_F(stalls, are_turns_that_last_and_not_many_short_ones) {
  one_.begin_turn();
  for (std::int64_t t = 1; t < 50; ++t) {
    look(t * ms);
    next_turn(one_);
  }
  EXPECT_EQ(watch_.count(), 0U);
  look(100 * ms);
  look(110 * ms - 1);
  EXPECT_EQ(watch_.count(), 0U);
  look(110 * ms);
  EXPECT_EQ(watch_.count(), 1U);
  look(130 * ms);
  EXPECT_EQ(watch_.count(), 1U) << "it is the same";
  EXPECT_EQ(watch_.longest(), 30 * ms);
  one_.end_turn();
  one_.end_turn();
  look(200 * ms);
  EXPECT_EQ(watch_.count(), 1U) << "it runs nothing";
  EXPECT_EQ(watch_.longest(), 30 * ms);
}

TEST_F(stalls, are_reported_once_a_second_with_the_number_of_those_that_were_not) {
  one_.begin_turn();
  two_.begin_turn();
  look(1 * ms);
  look(11 * ms);
  EXPECT_EQ(watch_.count(), 2U);
  EXPECT_TRUE(watch_.owes_report());
  look(111 * ms);
  EXPECT_TRUE(reported_.empty()) << "it may yet be asked";
  look(112 * ms);
  EXPECT_EQ(reported_, std::vector<std::uint64_t>{1}) << "the other";
  EXPECT_FALSE(watch_.owes_report());
  next_turn(one_);
  look(1000 * ms);
  look(1111 * ms);
  EXPECT_EQ(watch_.count(), 3U);
  EXPECT_FALSE(watch_.owes_report()) << "there was one less than a second ago";
  next_turn(one_);
  look(1112 * ms);
  look(1122 * ms);
  EXPECT_TRUE(watch_.owes_report());
  look(1300 * ms);
  EXPECT_EQ(reported_, (std::vector<std::uint64_t>{1, 1}));
  EXPECT_EQ(watch_.recent().size(), 2U);
}

TEST_F(stalls, are_remembered_up_to_a_number_and_the_oldest_is_forgotten) {
  std::int64_t now = 2000 * ms;
  std::size_t most = 0;
  for (int i = 0; i < 100; ++i) {
    next_turn(one_);
    look(now);
    look(now + 10 * ms);
    look(now + 200 * ms);
    most = std::max(most, watch_.recent().size());
    now += 2000 * ms;
  }
  EXPECT_EQ(watch_.count(), 100U);
  ASSERT_EQ(reported_.size(), 100U);
  const std::vector<stall> recent = watch_.recent();
  ASSERT_EQ(recent.size(), most);
  EXPECT_GT(most, 1U);
  EXPECT_LT(most, 100U);
  const stall& last = recent.back();
  EXPECT_EQ(last.since, clock::time_point(std::chrono::nanoseconds(now - 2000 * ms)));
  EXPECT_EQ(last.lasted, std::chrono::milliseconds(200));
  EXPECT_EQ(last.thread, std::numeric_limits<pid_t>::max());
  EXPECT_EQ(last.what, "?");
  EXPECT_EQ(recent.front().since, last.since - (most - 1) * std::chrono::seconds(2));
}

TEST(a_stall, is_written_with_what_is_known_of_it) {
  stall s;
  s.what = "work";
  s.place = "work";
  s.thread = 7;
  const std::string without = to_string(s);
  EXPECT_EQ(without.find('('), std::string::npos) << without;
  EXPECT_EQ(without.find("not reported"), std::string::npos) << without;
  s.place = "place";
  s.unreported = 3;
  s.backtrace = {reinterpret_cast<const void*>(1), reinterpret_cast<const void*>(2)};
  const std::string all = to_string(s);
  EXPECT_NE(all.find("work (place)"), std::string::npos) << all;
  EXPECT_NE(all.find(": 0x1 < 0x2"), std::string::npos) << all;
  EXPECT_TRUE(all.ends_with("; stalls that were not reported since the last: 3")) << all;
}

// ---- Jobs

/// A job that says when it is abandoned.
struct known_job : job {
  known_job(job_list& of, std::vector<std::uint64_t>& log) : list(of), abandoned(log) {
    abandon = [](job& j) noexcept {
      auto& self = static_cast<known_job&>(j);
      self.abandoned.push_back(self.number);
      self.list.remove(self);
    };
    list.add(*this);
  }
  job_list& list;
  std::vector<std::uint64_t>& abandoned;
};

TEST(job_list, abandons_the_jobs_in_the_order_in_which_they_have_begun) {
  job_list list;
  std::vector<std::uint64_t> abandoned;
  known_job first(list, abandoned);
  known_job second(list, abandoned);
  known_job third(list, abandoned);
  known_job fourth(list, abandoned);
  list.remove(third);
  list.abandon_all();
  EXPECT_EQ(abandoned, (std::vector<std::uint64_t>{1, 2, 4}));
}

TEST(job_list, leaves_the_job_that_runs) {
  job_list list;
  std::vector<std::uint64_t> abandoned;
  known_job running(list, abandoned);
  known_job other(list, abandoned);
  list.abandon_all(&running);
  EXPECT_EQ(abandoned, (std::vector<std::uint64_t>{2}));
  std::vector<std::uint64_t> left;
  list.for_each([&](const job& j) { left.push_back(j.number); });
  EXPECT_EQ(left, (std::vector<std::uint64_t>{1}));
}

TEST(job_lists, count_those_that_have_begun_and_those_that_live) {
  job_lists all;
  std::array<job, 40> jobs{};
  EXPECT_EQ(all.live(), 0U);
  for (job& j : jobs) all.add(j);
  EXPECT_EQ(all.begun(), 40U);
  EXPECT_EQ(all.live(), 40U);
  std::size_t seen = 0;
  all.for_each(1000, [&](const job&) { ++seen; });
  EXPECT_EQ(seen, 40U);
  for (std::size_t i = 0; i < 10; ++i) all.remove(jobs[i]);
  EXPECT_EQ(all.begun(), 40U);
  EXPECT_EQ(all.live(), 30U);
  for (std::size_t i = 10; i < 40; ++i) all.remove(jobs[i]);
}

}  // namespace
}  // namespace verge::detail
