// A task's life, tried exhaustively: every sequence of transitions up to a depth, against a table
// that says for each state what each transition does.

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
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
  give_back,
  touch,
  touch_stale,
  bury,
  bury_stale,
  kick,
  reschedule_now,
  reschedule_later,
};
constexpr int events = static_cast<int>(event::reschedule_later) + 1;

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
};

/// What the drawing in task.h says, event by event.
expected table(task_state s, event e) {
  using enum task_state;
  const bool delayed_ = s == delayed;
  const bool reserved_ = s == reserved;
  const expected no{outcome::wrong_state, s};
  const auto holder = [&](task_state to) { return reserved_ ? expected{outcome::done, to} : no; };
  const expected stale = reserved_ ? expected{outcome::stale_lease, s} : no;
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
    case event::give_back:
      return holder(ready);
    case event::release_delayed:
      return holder(delayed);
    case event::touch:
      return holder(reserved);
    case event::bury:
      return holder(buried);
    case event::release_stale:
    case event::touch_stale:
    case event::bury_stale:
      return stale;
    case event::kick:
      return s == buried || delayed_ ? expected{outcome::done, ready} : no;
    case event::reschedule_now:
      return reserved_ ? no : expected{outcome::done, ready};
    case event::reschedule_later:
      return reserved_ ? no : expected{outcome::done, delayed};
  }
  return no;
}

auto everything(const task& t) {
  return std::tie(t.state, t.priority, t.due, t.delay, t.reserves, t.timeouts, t.releases, t.buries,
                  t.kicks, t.token, t.lease_end, t.burial);
}

std::uint64_t explored = 0;

void explore(const task& t, int depth) {
  ++explored;
  for (int i = 0; i < events; ++i) {
    const auto e = static_cast<event>(i);
    task next = t;
    const expected wanted = table(t.state, e);
    ASSERT_EQ(apply(next, e), wanted.what) << name_of(t.state) << " event " << i;
    ASSERT_EQ(next.state, wanted.then) << name_of(t.state) << " event " << i;
    if (wanted.what != outcome::done) {
      ASSERT_EQ(everything(next), everything(t)) << "a transition that does not apply changed it";
      continue;
    }
    // Counters go up by one, each for its own reason.
    ASSERT_EQ(next.reserves - t.reserves,
              next.state == task_state::reserved && t.state != task_state::reserved ? 1U : 0U);
    ASSERT_EQ(next.timeouts - t.timeouts, e == event::expire ? 1U : 0U);
    ASSERT_EQ(next.releases - t.releases,
              e == event::release || e == event::release_delayed ? 1U : 0U);
    ASSERT_EQ(next.buries - t.buries, e == event::bury ? 1U : 0U);
    ASSERT_EQ(next.kicks - t.kicks, e == event::kick ? 1U : 0U);
    ASSERT_EQ(next.lease_end != 0, next.state == task_state::reserved);
    ASSERT_EQ(next.burial != 0, next.state == task_state::buried);
    // Only a delayed task is due later than now; and one that waits for its time is.
    if (next.state == task_state::ready) {
      ASSERT_LE(next.due, now + (e == event::falls_due ? 20 : 0));
    } else if (next.state == task_state::delayed) {
      ASSERT_GT(next.due, now);
    }
    if (depth > 1) explore(next, depth - 1);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(task_model, does_what_the_table_says_in_every_sequence) {
  for (const nanoseconds delay : {0, 15}) {
    task t;
    t.id = 1;
    begin(t, now, delay);
    explore(t, 9);
  }
  EXPECT_GT(explored, 100'000U);
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
