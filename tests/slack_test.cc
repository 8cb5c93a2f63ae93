// SPDX-License-Identifier: Apache-2.0

// Timers that may be late share their wake-ups, on every engine.

#include <clock/arithmetic.h>
#include <gtest/gtest.h>
#include <support/engines.h>
#include <verge/runtime.h>
#include <verge/simulation.h>
#include <verge/time.h>

#include <chrono>
#include <cstdint>
#include <random>
#include <vector>

namespace verge::test {
namespace {

using namespace std::chrono_literals;
using detail::with_slack;

TEST(slack, chooses_a_round_time_within_what_it_is_given) {
  EXPECT_EQ(with_slack(1000, 0), 1000);
  EXPECT_EQ(with_slack(1000, -5), 1000);
  EXPECT_EQ(with_slack(1000, 7), 1000) << "a multiple of 8";
  EXPECT_EQ(with_slack(1000, 23), 1008) << "a multiple of 16";
  EXPECT_EQ(with_slack(1000, 24), 1024);
  EXPECT_EQ(with_slack(1025, 1000), 1536);
  EXPECT_EQ(with_slack(1, 1), 2);
  EXPECT_EQ(with_slack(detail::never, 1000), detail::never);
  EXPECT_EQ(with_slack(detail::never - 10, 1000), detail::never - 10);
  std::mt19937_64 random(1);
  for (int i = 0; i < 100'000; ++i) {
    const auto when = static_cast<std::int64_t>(random() >> (2 + random() % 60)) + 1;
    const auto slack = static_cast<std::int64_t>(random() >> (2 + random() % 60));
    const auto t = with_slack(when, slack);
    ASSERT_GE(t, when);
    ASSERT_LE(t - when, slack);
  }
}

TEST(slack, of_coalesced_timers_grows_with_the_delay) {
  using detail::coalescing_slack;
  EXPECT_EQ(coalescing_slack(-1), 0);
  EXPECT_EQ(coalescing_slack(99'999), 0);
  EXPECT_EQ(coalescing_slack(100'000), 12'500);
  EXPECT_EQ(coalescing_slack(1'000'000), 125'000);
  EXPECT_EQ(coalescing_slack(32'000'000), 4'000'000);
  EXPECT_EQ(coalescing_slack(detail::never), 4'000'000);
}

/// A hundred timers that are due within 20 ms, on an otherwise idle runtime.
TEST(slack, of_coalesced_timers_lets_them_fire_together_and_none_early) {
  const auto distinct_times = [](bool coalesce) {
    runtime rt({.processors = 1, .coalesce = coalesce});
    const chan<int> done(100);
    std::vector<timer> all;
    for (int i = 0; i < 100; ++i) {
      const auto d = 20ms + i * 100us;
      const auto due = clock::now() + d;
      all.push_back(after_func(rt, d, [=] {
        EXPECT_GE(clock::now(), due) << "early";
        done.send(1);
      }));
    }
    for (int i = 0; i < 100; ++i) done.recv();
    return rt.stats().polls;
  };
  // However late threads are woken, there are no more than one time per millisecond or so.
  EXPECT_LT(distinct_times(true), 40U);
  EXPECT_GT(distinct_times(false), 0U);
}

class slack : public testing::TestWithParam<engine_traits> {
 protected:
  /// A timing wheel of 20 ms a bucket wakes for each bucket that expires in that second.
  static std::uint64_t coming_down() { return GetParam().tick == 0ns ? 0 : 60; }

  /// How often time jumps for a thousand timers that are due in the same second.
  enum class given_to : std::uint8_t { start, start_at, reset, reset_at };
  static std::uint64_t wakeups(std::chrono::nanoseconds allowed, given_to call) {
    simulation sim({.engine = GetParam().engine});
    const auto begin = sim.now();
    std::vector<timer> timers;
    int fired = 0;
    for (int i = 0; i < 1000; ++i) {
      const auto d = i * 1ms + i * 17us;
      const auto check = [&, d] {
        ++fired;
        EXPECT_GE(sim.now() - begin, d) << "early";
        EXPECT_LE(sim.now() - begin, d + allowed + GetParam().tick) << "late";
      };
      const bool by_reset = call == given_to::reset || call == given_to::reset_at;
      if (by_reset) timers.push_back(after_func(1min, check));
      switch (call) {
        case given_to::start:
          timers.push_back(after_func(d, check, {.slack = allowed}));
          break;
        case given_to::start_at:
          timers.push_back(after_func(begin + d, check, {.slack = allowed}));
          break;
        case given_to::reset:
          EXPECT_TRUE(timers.back().reset(d, {.slack = allowed}));
          break;
        case given_to::reset_at:
          EXPECT_TRUE(timers.back().reset_at(begin + d, {.slack = allowed}));
          break;
      }
    }
    const std::uint64_t before = sim.jumps();
    sim.run_for(2s);
    EXPECT_EQ(fired, 1000);
    return sim.jumps() - before;
  }
};

TEST_P(slack, lets_timers_share_their_wake_ups) {
  if (GetParam().tick == 0ns) {
    EXPECT_GE(wakeups(0ns, given_to::start), 1000U);
  }
  // Within 10 ms there is always a multiple of 8.4 ms: 121 of them in 1.017 s, and the end.
  EXPECT_LE(wakeups(10ms, given_to::start), 123U + coming_down());
  EXPECT_LE(wakeups(100ms, given_to::start), 17U + coming_down());
}

TEST_P(slack, is_given_to_a_reset_and_with_a_point_in_time_in_the_same_way) {
  EXPECT_LE(wakeups(10ms, given_to::start_at), 123U + coming_down());
  EXPECT_LE(wakeups(10ms, given_to::reset), 123U + coming_down());
  EXPECT_LE(wakeups(10ms, given_to::reset_at), 123U + coming_down());
}

TEST_P(slack, is_for_channel_timers_too) {
  simulation sim({.engine = GetParam().engine});
  const auto begin = sim.now();
  timer by_delay(1001ms, {.slack = 100ms});
  timer by_time(begin + 1001ms, {.slack = 100ms});
  timer by_reset(1min);
  EXPECT_TRUE(by_reset.reset_at(begin + 1001ms, {.slack = 100ms}));
  for (const timer* t : {&by_delay, &by_time, &by_reset}) {
    const auto at = t->c().recv();
    ASSERT_TRUE(at);
    EXPECT_GE(*at - begin, 1001ms);
    EXPECT_LE(*at - begin, 1101ms + GetParam().tick);
  }
}

TEST_P(slack, is_given_to_a_sleep_until_a_time_and_for_a_while) {
  simulation sim({.engine = GetParam().engine});
  const auto begin = sim.now();
  const auto due = begin + 1001ms;
  const auto round = clock::time_point(
      std::chrono::nanoseconds(detail::with_slack(due.time_since_epoch().count(), 100'000'000)));
  ASSERT_GT(round, due);
  for (const bool until : {false, true}) {
    sim.run([&, until]() -> task<> {
      const auto now = sim.now();
      if (until) {
        co_await sleep_until(now + 1001ms, {.slack = 100ms});
      } else {
        co_await sleep(1001ms, {.slack = 100ms});
      }
      const auto latest = clock::time_point(std::chrono::nanoseconds(
          detail::with_slack((now + 1001ms).time_since_epoch().count(), 100'000'000)));
      EXPECT_GE(sim.now(), latest);
      EXPECT_LE(sim.now(), latest + GetParam().tick);
    });
  }
}

TEST(slack, of_a_sleep_is_given_once) {
  simulation sim;
  std::mt19937_64 random(5);
  for (int i = 0; i < 2'000; ++i) {
    const std::chrono::nanoseconds length(1'000 + random() % 1'000'000'000);
    const std::chrono::nanoseconds late(1 + random() % 1'000'000);
    for (const bool until : {false, true}) {
      const auto begin = sim.now();
      sim.run([&]() -> task<> {
        if (until) {
          co_await sleep_until(begin + length, {.slack = late});
        } else {
          co_await sleep(length, {.slack = late});
        }
      });
      ASSERT_GE(sim.now() - begin, length);
      ASSERT_LE(sim.now() - begin, length + late) << "until: " << until;
    }
  }
}

TEST_P(slack, is_removed_by_a_reset_without_slack) {
  simulation sim({.engine = GetParam().engine});
  const auto begin = sim.now();
  timer t(1001ms, {.slack = 100s});
  EXPECT_TRUE(t.reset(1001ms));
  EXPECT_LE(*t.c().recv() - begin, 1001ms + GetParam().tick);
}

INSTANTIATE_TEST_SUITE_P(engines, slack, testing::ValuesIn(engines),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace verge::test
