// SPDX-License-Identifier: Apache-2.0

// A task's life, tried exhaustively: every sequence of transitions up to a depth, against a table
// that says for each state what each transition does.

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "model/task.h"

namespace {

using namespace verge::server;

constexpr wall_time now = 1'000'000;
constexpr lease_token right = 7;
constexpr lease_token wrong = 8;

enum class event : std::uint8_t {
  falls_due,
  falls_due_early,
  reserve,
  reserve_by_id,
  release,
  release_delayed,
  release_stale,
  expire,
  expire_stale,
  give_back,
  touch,
  touch_stale,
  bury,
  bury_stale,
  postpone,
  postpone_delayed,
  postpone_stale,
  fail,
  fail_delayed,
  fail_for_the_last_time,
  fail_stale,
  kick,
  reschedule_now,
  reschedule_later,
};
constexpr int events = static_cast<int>(event::reschedule_later) + 1;

/// A receiver's attempts are limited by its tube, not by the task.
constexpr std::uint32_t most_pushes = 2;

outcome apply(task& t, event e) {
  switch (e) {
    case event::falls_due:
      return fall_due(t, t.due);
    case event::falls_due_early:
      return fall_due(t, t.due - 1);
    case event::reserve:
      return reserve(t, right, now);
    case event::reserve_by_id:
      return reserve(t, right, now, true);
    case event::release:
      return release(t, right, 3, now, 0);
    case event::release_delayed:
      return release(t, right, 3, now, 10);
    case event::release_stale:
      return release(t, wrong, 3, now, 0);
    case event::expire:
      return expire(t, right, now);
    case event::expire_stale:
      return expire(t, wrong, now);
    case event::give_back:
      return give_back(t, right, now);
    case event::touch:
      return touch(t, right, now);
    case event::touch_stale:
      return touch(t, wrong, now);
    case event::bury:
      return bury(t, right, 4, 1);
    case event::bury_stale:
      return bury(t, wrong, 4, 1);
    case event::postpone:
      return postpone(t, right, now, 0);
    case event::postpone_delayed:
      return postpone(t, right, now, 10);
    case event::postpone_stale:
      return postpone(t, wrong, now, 0);
    case event::fail:
      return fail(t, right, now, 0, 0, "HTTP 500");
    case event::fail_delayed:
      return fail(t, right, now, 10, 0, "HTTP 500");
    case event::fail_for_the_last_time:
      return fail(t, right, now, 10, most_pushes, "HTTP 500");
    case event::fail_stale:
      return fail(t, wrong, now, 0, 1, "HTTP 500");
    case event::kick:
      return kick(t, now);
    case event::reschedule_now:
      return reschedule(t, now, 0);
    case event::reschedule_later:
      return reschedule(t, now, 20);
  }
  return outcome::wrong_state;
}

struct expected {
  outcome what;
  task_state then;
  nanoseconds delay{0};  ///< if it is delayed then
};

/// The delay after the first failed attempt, the second, and so on.
nanoseconds backoff_after(const task& t) {
  nanoseconds d = t.backoff;
  for (std::uint32_t i = 1; i < t.reserves; ++i) d *= 2;
  return d;
}

/// What the drawing in task.h says, event by event.
expected table(const task& t, event e) {
  using enum task_state;
  const task_state s = t.state;
  const bool delayed_ = s == delayed;
  const bool reserved_ = s == reserved;
  const expected no{outcome::wrong_state, s};
  const expected dead{outcome::dead, s};
  const auto holder = [&](task_state to) { return reserved_ ? expected{outcome::done, to} : no; };
  const auto later = [&](nanoseconds d) {
    return reserved_ ? expected{outcome::done, delayed, d} : no;
  };
  const expected stale = reserved_ ? expected{outcome::stale_lease, s} : no;
  const bool is_last = reserved_ && t.max_attempts != 0 && t.reserves >= t.max_attempts;
  switch (e) {
    case event::falls_due:
      return delayed_ ? expected{outcome::done, ready} : no;
    case event::falls_due_early:
      return no;
    case event::reserve:
      return s == ready ? expected{outcome::done, reserved} : no;
    case event::reserve_by_id:
      return reserved_ ? no : expected{outcome::done, reserved};
    case event::release:
    case event::expire:
      if (is_last) return dead;
      return t.backoff != 0 ? later(backoff_after(t)) : holder(ready);
    case event::release_delayed:
      return is_last ? dead : later(10);
    case event::give_back:
    case event::postpone:
    case event::fail:
      return holder(ready);
    case event::postpone_delayed:
    case event::fail_delayed:
      return later(10);
    case event::fail_for_the_last_time:
      return reserved_ && t.reserves >= most_pushes ? dead : later(10);
    case event::touch:
      return holder(reserved);
    case event::bury:
      return holder(buried);
    case event::release_stale:
    case event::expire_stale:
    case event::touch_stale:
    case event::bury_stale:
    case event::postpone_stale:
    case event::fail_stale:
      return stale;
    case event::kick:
      return s == buried || delayed_ ? expected{outcome::done, ready} : no;
    case event::reschedule_now:
      return reserved_ ? no : expected{outcome::done, ready};
    case event::reschedule_later:
      return reserved_ ? no : expected{outcome::done, delayed, 20};
  }
  return no;
}

auto everything(const task& t) {
  return std::tie(t.state, t.priority, t.due, t.delay, t.reserves, t.timeouts, t.releases, t.buries,
                  t.kicks, t.token, t.lease_end, t.burial, t.tube, t.key, t.dead_letter,
                  t.max_attempts, t.backoff, t.bound_to_connection, t.push);
}

std::uint64_t explored = 0;
std::uint64_t died = 0;

/// Counters go up by one, each for its own reason; an attempt that was put off is not counted.
void check_counters(const task& t, const task& next, event e, outcome what) {
  const bool is_fail =
      e == event::fail || e == event::fail_delayed || e == event::fail_for_the_last_time;
  const bool is_postponed = e == event::postpone || e == event::postpone_delayed;
  const bool is_reserved = e == event::reserve || e == event::reserve_by_id;
  ASSERT_EQ(next.reserves, t.reserves + (is_reserved ? 1 : 0) - (is_postponed ? 1 : 0));
  ASSERT_EQ(next.timeouts - t.timeouts, e == event::expire ? 1U : 0U);
  ASSERT_EQ(next.releases - t.releases,
            is_fail || e == event::release || e == event::release_delayed ? 1U : 0U);
  ASSERT_EQ(next.buries - t.buries, e == event::bury ? 1U : 0U);
  ASSERT_EQ(next.kicks - t.kicks, e == event::kick ? 1U : 0U);
  if (is_fail) {
    ASSERT_EQ(next.push->answer, "HTTP 500");
    ASSERT_EQ(next.push->url, "http://x/");
  }
  if (what == outcome::dead) return;
  ASSERT_EQ(next.lease_end != 0, next.state == task_state::reserved);
  ASSERT_EQ(next.burial != 0, next.state == task_state::buried);
}

void explore(const task& t, int depth);

/// No attempt is left: the caller buries the task, or moves it.
void explore_death(const task& dead, int depth) {
  ++died;
  ASSERT_EQ(dead.state, task_state::reserved) << "the caller decides where it goes";
  task buried = dead;
  bury_dead(buried, 7);
  ASSERT_EQ(buried.state, task_state::buried);
  ASSERT_EQ(buried.burial, 7U);
  ASSERT_EQ(buried.buries, dead.buries + 1);
  ASSERT_EQ(buried.lease_end, 0);
  ASSERT_EQ(buried.key, dead.key) << "it is still known by its key";
  task moved = dead;
  move_dead(moved, 2, now);
  ASSERT_EQ(moved.state, task_state::ready);
  ASSERT_EQ(moved.tube, 2U);
  ASSERT_EQ(moved.due, now);
  ASSERT_EQ(moved.lease_end, 0);
  ASSERT_TRUE(moved.key.empty() && moved.dead_letter.empty());
  ASSERT_TRUE(moved.max_attempts == 0 && moved.backoff == 0) << "it does not die again";
  ASSERT_TRUE(moved.push == nullptr || moved.push->url.empty());
  for (const task& next : {buried, moved}) {
    if (depth > 1) explore(next, depth - 1);
    if (testing::Test::HasFatalFailure()) return;
  }
}

void explore(const task& t, int depth) {
  ++explored;
  for (int i = 0; i < events; ++i) {
    const auto e = static_cast<event>(i);
    task next = t;
    // A task that was moved has no receiver any more, and is pushed to none.
    const bool is_push = e >= event::fail && e <= event::fail_stale;
    if (is_push && (t.push == nullptr || t.push->url.empty())) continue;
    const expected wanted = table(t, e);
    ASSERT_EQ(apply(next, e), wanted.what) << name_of(t.state) << " event " << i;
    ASSERT_EQ(next.state, wanted.then) << name_of(t.state) << " event " << i;
    if (wanted.what != outcome::done && wanted.what != outcome::dead) {
      ASSERT_EQ(everything(next), everything(t)) << "a transition that does not apply changed it";
      continue;
    }
    ASSERT_NO_FATAL_FAILURE(check_counters(t, next, e, wanted.what));
    if (wanted.what == outcome::dead) {
      ASSERT_NO_FATAL_FAILURE(explore_death(next, depth));
      continue;
    }
    // Only a delayed task is due later than now; and one that waits for its time is.
    if (next.state == task_state::ready) {
      ASSERT_LE(next.due, now + (e == event::falls_due ? 1000 : 0));
    } else if (next.state == task_state::delayed) {
      ASSERT_EQ(next.due, now + wanted.delay) << "event " << i;
      ASSERT_EQ(next.delay, wanted.delay);
    }
    if (depth > 1) explore(next, depth - 1);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(task_model, does_what_the_table_says_in_every_sequence) {
  struct kind {
    nanoseconds delay;
    std::uint32_t max_attempts;
    nanoseconds backoff;
    int depth;
  };
  for (const kind& k : {kind{0, 0, 0, 7}, kind{15, 0, 0, 7}, kind{0, 2, 0, 7}, kind{0, 3, 5, 7},
                        kind{15, 1, 5, 6}}) {
    task t;
    t.id = 1;
    t.tube = 1;
    t.key = "key";
    t.dead_letter = "dead";
    t.max_attempts = k.max_attempts;
    t.backoff = k.backoff;
    t.push = std::make_shared<const push_part>(push_part{.url = "http://x/", .answer = {}});
    begin(t, now, k.delay);
    explore(t, k.depth);
  }
  EXPECT_GT(explored, 100'000U);
  EXPECT_GT(died, 1'000U);
}

TEST(task_model, is_removed_by_its_holder_or_when_it_is_not_reserved) {
  task t;
  begin(t, now, 0);
  EXPECT_EQ(may_remove(t, 0), outcome::done);
  ASSERT_EQ(reserve(t, right, now), outcome::done);
  EXPECT_EQ(may_remove(t, 0), outcome::stale_lease);
  EXPECT_EQ(may_remove(t, wrong), outcome::stale_lease);
  EXPECT_EQ(may_remove(t, right), outcome::done);
  ASSERT_EQ(bury(t, right, 0, 1), outcome::done);
  EXPECT_EQ(may_remove(t, 0), outcome::done);
}

TEST(task_model, has_a_back_off_that_doubles_and_a_last_attempt) {
  task t;
  t.backoff = 100;
  t.max_attempts = 4;
  begin(t, now, 0);
  for (const nanoseconds delay : {100, 200, 400}) {
    t.state = task_state::ready;
    ASSERT_EQ(reserve(t, right, now), outcome::done);
    ASSERT_EQ(expire(t, right, now), outcome::done);
    EXPECT_EQ(t.state, task_state::delayed);
    EXPECT_EQ(t.due, now + delay);
  }
  t.state = task_state::ready;
  ASSERT_EQ(reserve(t, right, now), outcome::done);
  EXPECT_EQ(expire(t, right, now), outcome::dead);
  EXPECT_EQ(t.state, task_state::reserved) << "the caller decides where it goes";
}

TEST(task_model, has_a_back_off_that_never_overflows) {
  task t;
  t.backoff = longest;
  begin(t, now, 0);
  for (std::uint32_t reserves : {1U, 2U, 40U, 64U, 4'000'000'000U}) {
    t.reserves = reserves - 1;
    t.state = task_state::ready;
    ASSERT_EQ(reserve(t, right, now), outcome::done);
    ASSERT_EQ(release(t, right, 0, now, 0), outcome::done);
    EXPECT_EQ(t.delay, longest);
  }
}

TEST(task_model, saturates_due_times) {
  EXPECT_EQ(due_after(INT64_MAX - 5, 10), INT64_MAX);
  EXPECT_EQ(due_after(5, -10), 5);
  EXPECT_EQ(due_after(-5, 10), 5);
}

TEST(task_model, knows_the_names_of_tubes) {
  const auto is = [](const std::string& s) { return is_name(s.data(), s.size()); };
  EXPECT_TRUE(is("default"));
  EXPECT_TRUE(is("A-Za-z0-9-+/;.$_()"));
  EXPECT_TRUE(is(std::string(200, 'x')));
  EXPECT_FALSE(is(std::string(201, 'x')));
  EXPECT_FALSE(is(""));
  EXPECT_FALSE(is("-x"));
  EXPECT_FALSE(is("a b"));
  EXPECT_FALSE(is("a\"b"));
  EXPECT_FALSE(is(std::string("a\0b", 3)));
}

}  // namespace
