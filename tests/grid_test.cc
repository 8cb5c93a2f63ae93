// SPDX-License-Identifier: Apache-2.0

// Tickers on an absolute grid: start + n * period, whenever they are made.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <vector>

#include <verge/simulation.h>
#include <verge/time.h>

namespace verge {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using testing::ElementsAre;

struct grid_test : testing::Test {
  milliseconds passed() { return std::chrono::duration_cast<milliseconds>(sim.now() - start); }
  auto note() {
    return [this] { at.push_back(passed()); };
  }

  simulation sim;
  const time_point start = sim.now();
  std::vector<milliseconds> at;
};

TEST_F(grid_test, calls_at_the_start_and_then_every_period) {
  const auto t = every(start + 25ms, 10ms, note());
  sim.run_for(50ms);
  EXPECT_THAT(at, ElementsAre(25ms, 35ms, 45ms));
}

TEST_F(grid_test, a_start_in_the_past_keeps_the_grid) {
  sim.run_for(33ms);
  const auto t = every(start + 5ms, 10ms, note());
  sim.run_for(20ms);
  EXPECT_THAT(at, ElementsAre(35ms, 45ms));
}

TEST_F(grid_test, a_start_before_the_clock_began_keeps_the_grid) {
  const auto t = every(time_point(-3ms), 10ms, note());  // an hour is 360,000 such periods
  sim.run_for(20ms);
  EXPECT_THAT(at, ElementsAre(7ms, 17ms));
}

TEST_F(grid_test, a_tick_that_is_due_now_is_not_missed) {
  const auto t = every(start, 10ms, note());
  const auto later = every(start - 20ms, 10ms, note());
  sim.run_for(10ms);
  EXPECT_THAT(at, ElementsAre(0ms, 0ms, 10ms, 10ms));
}

TEST_F(grid_test, a_channel_ticks_on_the_grid_too) {
  sim.run_for(7ms);
  const ticker t(start, 10ms);
  for (int i = 0; i < 3; ++i)
    at.push_back(std::chrono::duration_cast<milliseconds>(*t.c().recv() - start));
  EXPECT_THAT(at, ElementsAre(10ms, 20ms, 30ms));
}

TEST_F(grid_test, a_late_call_does_not_move_it) {
  const auto t = every(start, 10ms, [this] {
    at.push_back(passed());
    if (at.size() == 1) verge::sleep(34ms).wait();
  });
  sim.run_for(51ms);
  EXPECT_THAT(at, ElementsAre(0ms, 34ms, 40ms, 50ms));
}

TEST_F(grid_test, a_start_at_the_end_of_time_never_comes) {
  const auto t = every(time_point::max(), 1ns, note());
  sim.run_for(24h);
  EXPECT_TRUE(at.empty());
}

TEST_F(grid_test, a_period_of_zero_or_less_is_refused) {
  EXPECT_THROW(static_cast<void>(every(start, 0s, note())), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(every(start, -1s, note())), std::invalid_argument);
  EXPECT_THROW(ticker(start, 0s).detach(), std::invalid_argument);
}

TEST_F(grid_test, a_reset_counts_from_now) {
  auto t = every(start, 10ms, note());
  sim.run_for(13ms);
  t.reset(5ms);
  sim.run_for(10ms);
  EXPECT_THAT(at, ElementsAre(0ms, 10ms, 18ms, 23ms));
}

}  // namespace
}  // namespace verge
