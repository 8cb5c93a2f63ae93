// The two wheels and the delay queue, by themselves: no thread, no clock, every step verified.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <queue/simple_wheel.h>
#include <queue/timing_wheel.h>
#include <support/scale.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <vector>

namespace verge::detail {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t us = 1'000;
constexpr std::int64_t ms = 1'000 * us;
constexpr std::int64_t s = 1'000 * ms;

/// The times of all that is due at `now`, in the order in which the wheel gives them.
template <class Wheel>
std::vector<std::int64_t> pop_all(Wheel& wheel, std::int64_t now) {
  std::vector<std::int64_t> times;
  while (list_hook* t = wheel.pop_due(now)) times.push_back(t->when);
  return times;
}

template <class Wheel>
class wheel : public ::testing::Test {};
using wheels = ::testing::Types<simple_wheel, timing_wheel>;
TYPED_TEST_SUITE(wheel, wheels);

TYPED_TEST(wheel, fires_a_timer_at_the_first_tick_that_is_not_before_its_time) {
  TypeParam w({.tick = 10 * ms, .size = 100});
  list_hook on_the_tick;
  list_hook between;
  w.insert(on_the_tick, 50 * ms, 0, 1);
  w.insert(between, 50 * ms + 1, 0, 1);
  EXPECT_EQ(w.pop_due(50 * ms - 1), nullptr);
  EXPECT_EQ(w.pop_due(50 * ms), &on_the_tick);
  EXPECT_EQ(w.pop_due(60 * ms - 1), nullptr);
  EXPECT_EQ(w.pop_due(60 * ms), &between);
  EXPECT_EQ(w.size(), 0U);
}

TYPED_TEST(wheel, has_nothing_to_do_while_it_is_empty) {
  TypeParam w({.tick = ms, .size = 8});
  EXPECT_EQ(w.next(), 0);
  list_hook t;
  w.insert(t, 5 * ms, 0, 1);
  EXPECT_GT(w.next(), 0);
  w.erase(t);
  EXPECT_EQ(w.next(), 0);
  EXPECT_FALSE(TypeParam::waits(t));
}

TYPED_TEST(wheel, takes_up_again_where_the_clock_is_after_it_stood_still) {
  TypeParam w({.tick = ms, .size = 8});
  list_hook t;
  const std::int64_t a_year_on = 365 * 86'400 * s;
  w.insert(t, a_year_on + 3 * ms, 0, a_year_on);
  EXPECT_LE(w.next(), a_year_on + 4 * ms);
  EXPECT_EQ(w.pop_due(a_year_on + 4 * ms), &t);
}

TYPED_TEST(wheel, fires_what_is_in_the_past_at_once) {
  TypeParam w({.tick = ms, .size = 8});
  list_hook first;
  list_hook past;
  w.insert(first, 100 * ms, 0, 99 * ms);
  w.insert(past, 1, 0, 99 * ms);
  EXPECT_LE(w.next(), 99 * ms);
  EXPECT_EQ(w.pop_due(99 * ms), &past);
}

TYPED_TEST(wheel, refuses_a_tick_or_a_size_that_makes_no_wheel_and_says_which) {
  const auto message = [](wheel_shape shape) -> std::string {
    try {
      TypeParam w(shape);
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "";
  };
  for (const std::int64_t tick :
       {std::int64_t{0}, std::int64_t{-1}, us - 1, INT64_MAX, INT64_MIN}) {
    EXPECT_THAT(message({.tick = tick, .size = 20}), HasSubstr("from 1 us to 1 h"));
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, SIZE_MAX}) {
    EXPECT_THAT(message({.tick = ms, .size = size}), HasSubstr("from 2 to"));
  }
  EXPECT_EQ(message({.tick = us, .size = 2}), "");
}

/// A random walk beside a list of what should be waiting.
TYPED_TEST(wheel, agrees_with_a_plain_model_under_random_operations) {
  struct shape {
    wheel_shape wheel;
    std::int64_t longest_delay;
    std::int64_t longest_step;
  };
  const shape shapes[] = {
      {{ms, 4096}, 3 * s, 5 * ms}, {{us, 512}, 300 * us, 5 * us}, {{ms, 1024}, 300 * ms, 500 * ms}};
  const int steps = test::scale(100'000, 10'000);
  unsigned seed = 0;
  for (const shape& c : shapes) {
    SCOPED_TRACE(++seed);
    TypeParam w(c.wheel);
    std::mt19937_64 random(seed);
    std::vector<list_hook> timers(100);
    std::int64_t now = ms;
    for (int i = 0; i < steps; ++i) {
      list_hook& t = timers[random() % timers.size()];
      const auto op = random() % 4;
      if (op < 3 && TypeParam::waits(t)) w.erase(t);
      if (op < 2) {
        const auto delay = static_cast<std::int64_t>(random()) % c.longest_delay;
        w.insert(t, std::max<std::int64_t>(now + delay, 1), 0, now);
      } else if (op == 3) {
        now += static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(c.longest_step));
        for (const std::int64_t when : pop_all(w, now)) ASSERT_LE(when, now) << "early";
        for (const list_hook& left : timers) {
          if (!TypeParam::waits(left)) continue;
          ASSERT_GT(left.when + c.wheel.tick, now) << "late, at step " << i;
        }
      }
      ASSERT_EQ(w.verify(), "") << "at step " << i;
    }
    while (w.pop_any() != nullptr) {
    }
    EXPECT_EQ(w.size(), 0U);
    EXPECT_EQ(w.verify(), "");
  }
}

TEST(simple_wheel, refuses_a_delay_beyond_its_span_and_names_the_span) {
  simple_wheel w({.tick = 10 * ms, .size = 100});
  list_hook t;
  w.insert(t, 1 * s, 0, 1);  // just fits
  w.erase(t);
  for (const std::int64_t when : {s + 20 * ms, INT64_MAX}) {
    try {
      w.insert(t, when, 0, 1);
      FAIL() << "it took " << when;
    } catch (const std::invalid_argument& e) {
      EXPECT_THAT(e.what(), HasSubstr("1000000000 ns (100 ticks of 10000000 ns)"));
    }
    EXPECT_FALSE(simple_wheel::waits(t));
    EXPECT_EQ(w.verify(), "");
  }
}

TEST(simple_wheel, refuses_a_period_that_it_could_not_repeat) {
  simple_wheel w({.tick = 10 * ms, .size = 100});
  list_hook t;
  EXPECT_THROW(w.insert(t, 10 * ms, s + 1, 1), std::invalid_argument);
  w.insert(t, 10 * ms, s, 1);
}

TEST(simple_wheel, wakes_at_every_tick_while_a_timer_waits) {
  simple_wheel w({.tick = 10 * ms, .size = 100});
  list_hook t;
  w.insert(t, 50 * ms, 0, 1);
  int wakes = 0;
  for (std::int64_t now = w.next(); now != 0; now = w.next(), ++wakes) w.pop_due(now);
  EXPECT_EQ(wakes, 5);
}

TEST(simple_wheel, knows_the_first_tick_that_is_not_empty) {
  simple_wheel w({.tick = 10 * ms, .size = 100});
  EXPECT_EQ(w.next_exactly(), 0);
  list_hook far;
  list_hook near;
  w.insert(far, 900 * ms, 0, 1);
  EXPECT_EQ(w.next_exactly(), 900 * ms);
  w.insert(near, 495 * ms, 0, 1);
  EXPECT_EQ(w.next_exactly(), 500 * ms);
  EXPECT_EQ(w.pop_due(500 * ms), &near);
  EXPECT_EQ(w.next_exactly(), 900 * ms);
}

/// Runs a wheel until it is empty, as a driver would; gives how often it woke.
int drive(timing_wheel& w) {
  int wakes = 0;
  for (std::int64_t now = w.next(); now != 0; now = w.next(), ++wakes) {
    while (w.pop_due(now) != nullptr) {
    }
  }
  return wakes;
}

TEST(timing_wheel, wakes_for_no_empty_tick) {
  timing_wheel w({.tick = s, .size = 1000});
  list_hook soon;
  list_hook later;
  w.insert(soon, 200 * s, 0, 1);
  w.insert(later, 850 * s, 0, 1);
  EXPECT_EQ(drive(w), 2);
}

TEST(timing_wheel, wakes_once_more_for_each_level_that_a_timer_comes_down) {
  timing_wheel w({.tick = ms, .size = 20});
  list_hook t;
  w.insert(t, 350 * ms + 350, 0, 1);  // 20 ms on the first level, 400 ms on the second
  EXPECT_EQ(w.levels(), 2U);
  EXPECT_EQ(drive(w), 2);
  w.insert(t, 3'600 * s, 0, 350 * ms);
  const auto levels = static_cast<int>(w.levels());
  EXPECT_LE(drive(w), levels);
}

TEST(timing_wheel, wakes_for_no_bucket_whose_timers_were_all_stopped) {
  timing_wheel w({.tick = ms, .size = 20});
  std::vector<list_hook> timers(100);
  for (std::size_t i = 0; i < timers.size(); ++i) {
    w.insert(timers[i], static_cast<std::int64_t>(i + 1) * 7 * ms, 0, 1);
  }
  for (std::size_t i = 0; i < timers.size(); ++i) {
    if (i != 50) w.erase(timers[i]);
  }
  EXPECT_LE(drive(w), static_cast<int>(w.levels()));
}

TEST(timing_wheel, has_room_for_every_time_there_is) {
  timing_wheel w({.tick = us, .size = 2});
  list_hook end_of_time;
  list_hook a_while;
  w.insert(end_of_time, INT64_MAX, 0, 1);
  w.insert(a_while, 10 * us, 0, 1);
  EXPECT_EQ(w.verify(), "");
  EXPECT_EQ(w.pop_due(10 * us), &a_while);
  EXPECT_EQ(w.pop_due(INT64_MAX / 2), nullptr);
  EXPECT_TRUE(timing_wheel::waits(end_of_time));
  EXPECT_EQ(w.verify(), "");
}

TEST(timing_wheel, makes_levels_only_when_they_are_needed) {
  timing_wheel w({.tick = ms, .size = 20});
  EXPECT_EQ(w.levels(), 1U);
  list_hook t;
  w.insert(t, 19 * ms, 0, 1);
  EXPECT_EQ(w.levels(), 1U);
  w.erase(t);
  w.insert(t, 21 * ms, 0, 1);
  EXPECT_EQ(w.levels(), 2U);
}

TEST(timing_wheel, lets_a_bucket_be_filled_anew_while_its_timers_come_down) {
  timing_wheel w({.tick = ms, .size = 2});
  std::vector<list_hook> timers(64);
  for (std::size_t i = 0; i < timers.size(); ++i) {
    w.insert(timers[i], static_cast<std::int64_t>(i + 1) * ms, 0, 1);
  }
  std::int64_t last = 0;
  for (std::int64_t now = ms; now <= 64 * ms; now += ms) {
    for (const std::int64_t when : pop_all(w, now)) {
      EXPECT_GT(when, last);
      EXPECT_EQ(when, now);
      last = when;
    }
    ASSERT_EQ(w.verify(), "");
  }
  EXPECT_EQ(last, 64 * ms);
}

}  // namespace
}  // namespace verge::detail
