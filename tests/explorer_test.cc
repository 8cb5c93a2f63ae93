// SPDX-License-Identifier: Apache-2.0

// The explorer itself: small programs with known faults and known numbers of schedules.
#include <explorer/explored.h>
#include <explorer/explorer.h>
#include <explorer/explorer_policy.h>
#include <explorer/history.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace verge::test {
namespace {

/// Without timers; for programs with only atomics and locks.
class nobody : public watcher {
 public:
  nobody() { watcher::now = this; }
  std::string name_of(const void*) override { return "x"; }
};

class small_program : public program {
 public:
  std::vector<std::function<void()>> bodies;
  std::function<void()> start = [] {};
  std::function<void()> end = [] {};

  [[nodiscard]] std::size_t threads() const override { return bodies.size(); }
  void prepare() override { start(); }
  void run(std::size_t i) override { bodies[i](); }
  void inspect() override {}
  void finish() override { end(); }
};

class explorer_test : public explored {
 protected:
  nobody nobody_;
  explorer explorer_;
  small_program program_;
};

TEST_F(explorer_test, runs_every_interleaving_once) {
  explored_atomic<std::int64_t> x{0};
  const auto three_steps = [&] {
    for (int i = 0; i < 3; ++i) x.store(i);
  };
  program_.bodies = {three_steps, three_steps};
  EXPECT_EQ(explorer_.explore(program_).schedules, 20U);  // 6 over 3
  program_.bodies.emplace_back(three_steps);
  EXPECT_EQ(explorer_.explore(program_).schedules, 1680U);  // 9! / 3!^3
}

TEST_F(explorer_test, bounds_the_number_of_preemptions) {
  explored_atomic<std::int64_t> x{0};
  const auto three_steps = [&] {
    for (int i = 0; i < 3; ++i) x.store(i);
  };
  program_.bodies = {three_steps, three_steps};
  EXPECT_EQ(explorer_.explore(program_, 0).schedules, 2U);  // one after the other
  // One preemption: after the first or second step of the first thread.
  EXPECT_EQ(explorer_.explore(program_, 1).schedules, 2U + 4U);
}

TEST_F(explorer_test, finds_the_lost_update_and_replays_it) {
  explored_atomic<std::int64_t> x{0};
  const auto increment = [&] { x.store(x.load() + 1); };
  program_.bodies = {increment, increment};
  program_.start = [&] { x.reset(0); };
  program_.end = [&] {
    if (x.peek() != 2) explorer_.fail("sum", std::to_string(x.peek()));
  };
  const outcome found = explorer_.explore(program_);
  ASSERT_TRUE(found.failed);
  EXPECT_EQ(found.failed->check, "sum");
  EXPECT_EQ(found.failed->detail, "1");

  const outcome again = explorer_.replay(program_, found.failed->schedule);
  ASSERT_TRUE(again.failed);
  EXPECT_EQ(again.failed->detail, "1");
  EXPECT_EQ(again.failed->story, found.failed->story);
  EXPECT_NE(again.failed->story.find("x reads 0"), std::string::npos) << again.failed->story;
}

TEST_F(explorer_test, reports_a_schedule_that_does_not_fit) {
  explored_atomic<std::int64_t> x{0};
  program_.bodies = {[&] { x.store(1); }};
  const outcome r = explorer_.replay(program_, "1");
  ASSERT_TRUE(r.failed);
  EXPECT_EQ(r.failed->check, "schedule");
}

TEST_F(explorer_test, finds_the_deadlock_of_two_locks_taken_in_two_orders) {
  explored_lock a;
  explored_lock b;
  const auto take = [](explored_lock& first, explored_lock& second) {
    first.lock();
    second.lock();
    second.unlock();
    first.unlock();
  };
  program_.start = [&] {
    a.reset();
    b.reset();
  };
  program_.bodies = {[&] { take(a, b); }, [&] { take(b, a); }};
  const outcome found = explorer_.explore(program_);
  ASSERT_TRUE(found.failed);
  EXPECT_EQ(found.failed->check, "deadlock");
  program_.bodies = {[&] { take(a, b); }, [&] { take(a, b); }};
  EXPECT_FALSE(explorer_.explore(program_).failed);
}

TEST_F(explorer_test, a_thread_that_yields_waits_until_a_write) {
  explored_atomic<std::int64_t> flag{0};
  explored_atomic<std::int64_t> other{0};
  program_.start = [&] { flag.reset(0); };
  const auto await = [&] {
    while (flag.load() == 0) explorer_.yield();
  };
  program_.bodies = {await, [&] {
                       other.store(1);
                       other.store(2);
                       flag.store(1);
                     }};
  const outcome r = explorer_.explore(program_);
  EXPECT_FALSE(r.failed);
  // Its first read is before, between or after the three steps; a second one only at the end.
  EXPECT_EQ(r.schedules, 4U);
}

TEST_F(explorer_test, reports_threads_that_yield_to_each_other_forever) {
  explored_atomic<std::int64_t> a{0};
  explored_atomic<std::int64_t> b{0};
  const auto await = [&](explored_atomic<std::int64_t>& x) {
    while (x.load() == 0) explorer_.yield();
  };
  program_.bodies = {[&] {
                       await(a);
                       b.store(1);
                     },
                     [&] {
                       await(b);
                       a.store(1);
                     }};
  const outcome r = explorer_.explore(program_);
  ASSERT_TRUE(r.failed);
  EXPECT_EQ(r.failed->check, "deadlock");
}

// ---- What the checks of a schedule rest on ----

event happened(event::kind what, std::size_t begin, std::size_t end, arming with = {},
               bool answer = false) {
  event e;
  e.what = what;
  e.begin = begin;
  e.end = end;
  e.with = with;
  e.answer = answer;
  return e;
}

const timer_model pending_at_90{{true, 90, 0, 1}};
const arming not_pending{};
const arming fired_at_100{true, 100, 0, 1};

TEST(history, a_stop_that_says_true_explains_that_nothing_fired) {
  EXPECT_TRUE(explains({happened(event::stop, 1, 3, {}, true)}, pending_at_90, not_pending));
}

TEST(history, a_stop_that_says_true_and_a_firing_have_no_explanation) {
  EXPECT_FALSE(
      explains({happened(event::stop, 1, 9, {}, true), happened(event::fire, 2, 4, fired_at_100)},
               pending_at_90, not_pending));
}

TEST(history, a_stop_that_says_false_needs_a_firing_that_began_before_it_ended) {
  const event stop = happened(event::stop, 1, 5, {}, false);
  EXPECT_TRUE(
      explains({stop, happened(event::fire, 4, 7, fired_at_100)}, pending_at_90, not_pending));
  EXPECT_FALSE(
      explains({stop, happened(event::fire, 6, 7, fired_at_100)}, pending_at_90, not_pending));
}

TEST(history, one_arming_fires_once) {
  const event fire = happened(event::fire, 1, 2, fired_at_100);
  EXPECT_TRUE(explains({fire}, pending_at_90, not_pending));
  EXPECT_FALSE(
      explains({fire, happened(event::fire, 3, 4, fired_at_100)}, pending_at_90, not_pending));
}

TEST(history, nothing_fires_before_its_time) {
  const event late = happened(event::reset, 1, 2, {true, 120, 0, 0}, true);
  const event fire = happened(event::fire, 3, 4, fired_at_100);
  EXPECT_FALSE(explains({late, fire}, pending_at_90, not_pending));
}

TEST(history, a_firing_belongs_to_the_arming_whose_number_it_has) {
  const event mod = happened(event::mod, 1, 5, {true, 80, 0, 7}, false);
  const event old_fire = happened(event::fire, 2, 3, fired_at_100);
  EXPECT_TRUE(explains({mod, old_fire}, pending_at_90, {true, 80, 0, 7}));
  EXPECT_FALSE(explains({mod, old_fire}, pending_at_90, not_pending));
}

TEST(history, a_reset_that_got_lost_has_no_explanation) {
  const event reset = happened(event::reset, 1, 5, {true, 300, 0, 0}, true);
  EXPECT_TRUE(explains({reset}, pending_at_90, {true, 300, 0, 1}));
  EXPECT_FALSE(explains({reset}, pending_at_90, {true, 90, 0, 1}));
  EXPECT_FALSE(explains({reset}, pending_at_90, not_pending));
}

TEST(history, a_periodic_timer_stays_pending_on_its_grid) {
  const timer_model ticker{{true, 90, 40, 1}};
  const event fire = happened(event::fire, 1, 2, fired_at_100);
  EXPECT_TRUE(explains({fire}, ticker, {true, 130, 40, 1}));
  EXPECT_FALSE(explains({fire}, ticker, {true, 140, 40, 1}));
}

}  // namespace
}  // namespace verge::test
