// SPDX-License-Identifier: Apache-2.0

// The fast clock's arithmetic on a simulated machine: the test controls its counter and its
// kernel's clock, including behaviour that cannot be provoked on a real one.
#include <clock/tsc_anchor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <random>

namespace {

using verge::detail::tsc_anchor;
using verge::detail::tsc_bounds;
using verge::detail::tsc_rate;

class machine {
 public:
  explicit machine(double ghz) : ghz_(ghz) {}

  // Lets time pass, as the counter sees it.
  void run(double ns) {
    fraction_ += ns * ghz_;
    const auto whole = static_cast<std::uint64_t>(fraction_);
    fraction_ -= static_cast<double>(whole);
    ticks += whole;
    time_ += static_cast<double>(whole) / ghz_ * (1 + steer);
  }

  // The fast clock's now() on this machine, with rdtsc executed `early` ns early.
  std::int64_t now(double early = 0) {
    const std::uint64_t seen = ticks - static_cast<std::uint64_t>(early * ghz_);
    if (anchor.covers(seen)) return anchor.reading(seen);
    const std::uint64_t before = ticks;
    run(bracket_ns / 2);
    const std::int64_t t = true_time();
    run(bracket_ns / 2);
    return anchor.renew({.ticks = before, .bracket = ticks - before, .time = t}, rate);
  }

  std::int64_t true_time() const { return static_cast<std::int64_t>(time_); }

  // Reads until there is an anchor, for at most 10 ms: a rate takes two measurements of 1 ms.
  bool settle() {
    const auto end = true_time() + 10'000'000;
    while (!anchor.held() && true_time() < end) {
      now();
      run(500);
    }
    return anchor.held();
  }

  std::uint64_t ticks = 12345678;
  double steer = 0;        // by how much the kernel's clock runs fast
  double bracket_ns = 40;  // how long it takes to read it
  tsc_rate rate;
  tsc_anchor anchor;

 private:
  double ghz_;
  double fraction_ = 0;
  double time_ = 1e9;
};

void expect_within_bounds(machine& m, double early = 0) {
  const auto before = m.true_time();
  const auto reading = m.now(early);
  ASSERT_GE(reading, before);
  ASSERT_LE(reading, m.true_time() + tsc_bounds::ahead);
}

class on_a_counter_of : public testing::TestWithParam<double> {};

TEST_P(on_a_counter_of, readings_are_within_bounds_under_the_steering_that_ntp_may_do) {
  machine m(GetParam());
  std::mt19937 random(1);
  std::uniform_real_distribution<double> steer(-500e-6, 500e-6);
  std::uniform_real_distribution<double> pause(5, 3000);
  std::uniform_real_distribution<double> bracket(25, 200);
  std::uniform_real_distribution<double> early(0, 590);
  ASSERT_TRUE(m.settle());
  std::int64_t last = 0;
  int fast = 0;
  constexpr int readings = 300'000;
  for (int i = 0; i < readings; ++i) {
    if (i % 1000 == 0) m.steer = steer(random);
    m.bracket_ns = random() % 16 == 0 ? 5000 : bracket(random);
    // A preemption now and then, an idle second more rarely.
    m.run(random() % 1000 == 0 ? 4e6 : random() % 10'000 == 0 ? 1e9 : pause(random));
    fast += m.anchor.covers(m.ticks);
    ASSERT_NO_FATAL_FAILURE(expect_within_bounds(m, early(random)));
    const auto again = m.now();
    ASSERT_GE(again, last);
    last = again;
  }
  EXPECT_GT(fast, readings / 2);
}

TEST_P(on_a_counter_of, a_step_of_the_rate_within_the_limit_does_no_harm) {
  for (const double step : {-0.012, 0.012}) {
    machine m(GetParam());
    ASSERT_TRUE(m.settle());
    m.steer = step;
    for (int i = 0; i < 100'000; ++i) {
      m.run(137);
      ASSERT_NO_FATAL_FAILURE(expect_within_bounds(m, 300)) << "step " << step;
    }
  }
}

TEST_P(on_a_counter_of, a_larger_step_is_noticed_at_the_end_of_the_window) {
  for (const double step : {-0.1, -0.02, 0.02, 0.1}) {
    machine m(GetParam());
    ASSERT_TRUE(m.settle());
    m.steer = step;
    m.run(tsc_bounds::window + 1);  // in here the bound may break
    m.now();
    EXPECT_EQ(m.rate.get(), 0U) << "step " << step;
    EXPECT_FALSE(m.anchor.held());
    for (int i = 0; i < 100'000; ++i) {
      m.run(137);
      ASSERT_NO_FATAL_FAILURE(expect_within_bounds(m)) << "step " << step;
    }
    EXPECT_TRUE(m.anchor.held()) << "the new rate was not learnt after a step of " << step;
  }
}

TEST_P(on_a_counter_of, a_counter_that_jumps_costs_one_anchor) {
  for (const std::int64_t jump : {-12345677L, -1'000'000L, 1'000'000L, 1'000'000'000'000L}) {
    machine m(GetParam());
    ASSERT_TRUE(m.settle());
    m.ticks += static_cast<std::uint64_t>(jump);
    for (int i = 0; i < 100'000; ++i) {
      ASSERT_NO_FATAL_FAILURE(expect_within_bounds(m)) << "jump " << jump;
      m.run(137);
    }
    EXPECT_TRUE(m.settle()) << "jump " << jump;
  }
}

TEST_P(on_a_counter_of, a_jump_while_the_rate_is_measured_is_not_taken_for_a_rate) {
  machine m(GetParam());
  m.now();
  m.run(600'000);
  m.ticks += 50'000'000;
  m.run(600'000);
  m.now();
  EXPECT_EQ(m.rate.get(), 0U);
  ASSERT_TRUE(m.settle());
  for (int i = 0; i < 100'000; ++i) {
    m.run(137);
    ASSERT_NO_FATAL_FAILURE(expect_within_bounds(m));
  }
}

TEST_P(on_a_counter_of, a_slow_kernel_clock_makes_no_anchors) {
  machine m(GetParam());
  m.bracket_ns = 1500;  // a system call
  EXPECT_FALSE(m.settle());
  for (int i = 0; i < 1000; ++i) {
    m.run(137);
    ASSERT_NO_FATAL_FAILURE(expect_within_bounds(m));
  }
}

TEST_P(on_a_counter_of, a_released_anchor_leads_on_from_where_it_was) {
  machine m(GetParam());
  ASSERT_TRUE(m.settle());
  const auto last = m.now();
  const auto released = m.anchor.release(m.true_time());
  EXPECT_GE(released, last);
  EXPECT_LE(released, m.true_time() + tsc_bounds::ahead);
  EXPECT_FALSE(m.anchor.held());
  m.run(5000);
  EXPECT_EQ(m.anchor.release(m.true_time()), m.true_time());
}

// ---- The exact limits, on a counter of 1 GHz: a tick is a nanosecond ----------------------------

TEST(an_anchor, is_wrong_if_it_is_off_by_more_than_a_bracket_and_half_a_percent) {
  constexpr std::int64_t elapsed = 159'800;  // within eight windows
  constexpr std::int64_t most = tsc_bounds::bracket + elapsed / 200;
  for (const std::int64_t off : {-most - 1, -most, most, most + 1}) {
    machine m(1.0);
    ASSERT_TRUE(m.settle());
    ASSERT_EQ(m.rate.get(), std::uint64_t{1} << tsc_rate::shift);
    const std::int64_t time = m.true_time();
    m.anchor.renew({.ticks = m.ticks, .bracket = 40, .time = time}, m.rate);
    ASSERT_TRUE(m.anchor.held());
    m.anchor.renew({.ticks = m.ticks + elapsed, .bracket = 40, .time = time + elapsed + off},
                   m.rate);
    const bool right = off >= -most && off <= most;
    EXPECT_EQ(m.anchor.held(), right) << off;
    EXPECT_EQ(m.rate.get() != 0, right) << off;
  }
}

/// Over a longer time steering adds up.
TEST(an_anchor, is_not_judged_by_what_comes_eight_windows_later) {
  constexpr std::int64_t off = 100'000;
  for (const std::int64_t elapsed : {159'999, 160'000, 160'001, 900'000}) {
    machine m(1.0);
    ASSERT_TRUE(m.settle());
    const std::int64_t time = m.true_time();
    m.anchor.renew({.ticks = m.ticks, .bracket = 40, .time = time}, m.rate);
    ASSERT_TRUE(m.anchor.held());
    m.anchor.renew({.ticks = m.ticks + static_cast<std::uint64_t>(elapsed),
                    .bracket = 40,
                    .time = time + elapsed - off},
                   m.rate);
    EXPECT_EQ(m.rate.get() != 0, elapsed >= 8 * tsc_bounds::window) << elapsed;
  }
}

TEST(an_anchor, is_not_made_if_it_took_longer_than_a_bracket_to_read_the_clock) {
  machine m(1.0);
  ASSERT_TRUE(m.settle());
  const auto renew = [&](std::uint64_t bracket) {
    m.anchor.renew({.ticks = m.ticks, .bracket = bracket, .time = m.true_time()}, m.rate);
    return m.anchor.held();
  };
  EXPECT_FALSE(renew(tsc_bounds::bracket + 1));
  EXPECT_TRUE(renew(tsc_bounds::bracket));
}

/// The rate after three measurements of 1.056 ms in so many ticks each.
std::uint64_t rate_of(std::initializer_list<std::uint64_t> ticks) {
  tsc_rate rate;
  verge::detail::bracketed_time now{.ticks = 1, .bracket = 40, .time = 1'000'000'000};
  rate.sample(now);
  for (const std::uint64_t n : ticks) {
    now.ticks += n;
    now.time += 1'056'000;
    rate.sample(now);
  }
  return rate.get();
}

/// Over a second or more the machine may have been suspended.
TEST(a_rate, is_not_measured_over_a_long_time_and_anew_once_it_was_dropped) {
  constexpr std::int64_t ms = 1'000'000;
  tsc_rate rate;
  verge::detail::bracketed_time now{.ticks = 1, .bracket = 40, .time = 1000 * ms};
  const auto sample_after = [&](std::int64_t time, std::int64_t ticks) {
    now.time += time;
    now.ticks += static_cast<std::uint64_t>(ticks);
    rate.sample(now);
    return rate.get() != 0;
  };
  EXPECT_FALSE(sample_after(0, 0));
  EXPECT_FALSE(sample_after(ms, ms));
  EXPECT_TRUE(sample_after(ms, ms));
  EXPECT_TRUE(sample_after(1001 * ms, ms)) << "the counter stood still meanwhile";
  EXPECT_TRUE(sample_after(ms, ms));
  rate.drop();
  EXPECT_FALSE(sample_after(1, 1)) << "a measurement begins at once";
  EXPECT_FALSE(sample_after(ms, ms));
  EXPECT_TRUE(sample_after(ms, ms));
}

TEST(a_rate, of_less_than_a_tick_in_32_nanoseconds_is_rejected) {
  EXPECT_EQ(rate_of({32'999, 32'999, 32'999}), 0U);
  EXPECT_NE(rate_of({33'000, 33'000, 33'000}), 0U);
}

TEST(a_rate, is_valid_if_two_measurements_differ_by_no_more_than_a_hundredth) {
  constexpr std::uint64_t ticks = 1'056'000;
  constexpr std::uint64_t one = std::uint64_t{1} << tsc_rate::shift;
  EXPECT_EQ(rate_of({ticks}), 0U) << "one is not enough";
  EXPECT_EQ(rate_of({ticks, ticks}), one);
  EXPECT_GT(rate_of({ticks, ticks, ticks - ticks / 200}), one);
  EXPECT_LT(rate_of({ticks, ticks, ticks + ticks / 200}), one);
  EXPECT_NE(rate_of({ticks, ticks, ticks + ticks / 200}), 0U);
  EXPECT_EQ(rate_of({ticks, ticks, ticks - ticks / 50}), 0U);
  EXPECT_EQ(rate_of({ticks, ticks, ticks + ticks / 50}), 0U);
}

INSTANTIATE_TEST_SUITE_P(gigahertz, on_a_counter_of, testing::Values(1.0, 2.596, 3.7, 5.0));

}  // namespace
