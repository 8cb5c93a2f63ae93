// SPDX-License-Identifier: Apache-2.0

// The two wheels and the delay queue alone: no thread, no clock, every step verified.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory/page_source.h>
#include <queue/divisor.h>
#include <queue/simple_wheel.h>
#include <queue/timing_wheel.h>
#include <support/failures.h>
#include <support/scale.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <random>
#include <stdexcept>
#include <vector>

namespace verge::detail {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t us = 1'000;
constexpr std::int64_t ms = 1'000 * us;
constexpr std::int64_t s = 1'000 * ms;

/// How a wheel is driven.
auto at(std::int64_t now) {
  return [now] { return now; };
}

template <class Wheel>
typename Wheel::hook* pop(Wheel& wheel, std::int64_t now) {
  return wheel.pop_due(now).timer;
}

/// The times of everything due at `now`, in the order in which the wheel returns it.
template <class Wheel>
std::vector<std::int64_t> pop_all(Wheel& wheel, std::int64_t now) {
  std::vector<std::int64_t> times;
  for (auto t = wheel.pop_due(now); t.timer != nullptr; t = wheel.pop_due(now)) {
    times.push_back(t.when);
  }
  return times;
}

template <class Wheel>
class wheel : public ::testing::Test {};
using wheels = ::testing::Types<simple_wheel, timing_wheel>;
TYPED_TEST_SUITE(wheel, wheels);

TYPED_TEST(wheel, fires_a_timer_at_the_first_tick_that_is_not_before_its_time) {
  TypeParam w({.tick = 10 * ms, .size = 100});
  typename TypeParam::hook on_the_tick;
  typename TypeParam::hook between;
  w.insert(on_the_tick, 50 * ms, 0, at(1));
  w.insert(between, 50 * ms + 1, 0, at(1));
  EXPECT_EQ(pop(w, 50 * ms - 1), nullptr);
  EXPECT_EQ(pop(w, 50 * ms), &on_the_tick);
  EXPECT_EQ(pop(w, 60 * ms - 1), nullptr);
  EXPECT_EQ(pop(w, 60 * ms), &between);
  EXPECT_EQ(w.size(), 0U);
}

TYPED_TEST(wheel, has_nothing_to_do_while_it_is_empty) {
  TypeParam w({.tick = ms, .size = 8});
  EXPECT_EQ(w.next(), 0);
  typename TypeParam::hook t;
  w.insert(t, 5 * ms, 0, at(1));
  EXPECT_GT(w.next(), 0);
  w.erase(t);
  EXPECT_EQ(w.next(), 0);
  EXPECT_FALSE(TypeParam::waits(t));
}

TYPED_TEST(wheel, resumes_at_the_current_time_after_a_pause) {
  TypeParam w({.tick = ms, .size = 8});
  typename TypeParam::hook t;
  const std::int64_t a_year_on = 365 * 86'400 * s;
  w.insert(t, a_year_on + 3 * ms, 0, at(a_year_on));
  EXPECT_LE(w.next(), a_year_on + 4 * ms);
  EXPECT_EQ(pop(w, a_year_on + 4 * ms), &t);
}

TYPED_TEST(wheel, fires_what_is_in_the_past_at_once) {
  TypeParam w({.tick = ms, .size = 8});
  typename TypeParam::hook first;
  typename TypeParam::hook past;
  w.insert(first, 100 * ms, 0, at(99 * ms));
  w.insert(past, 1, 0, at(99 * ms));
  EXPECT_LE(w.next(), 99 * ms);
  EXPECT_EQ(pop(w, 99 * ms), &past);
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

/// A random walk compared with a list of the pending timers.
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
    std::vector<typename TypeParam::hook> timers(100);
    std::vector<std::int64_t> times(timers.size());
    std::int64_t now = ms;
    for (int i = 0; i < steps; ++i) {
      const std::size_t which = random() % timers.size();
      typename TypeParam::hook& t = timers[which];
      const auto op = random() % 4;
      if (op > 0 && op < 3 && TypeParam::waits(t)) w.erase(t);
      if (op < 2) {
        const auto delay = static_cast<std::int64_t>(random()) % c.longest_delay;
        times[which] = std::max<std::int64_t>(now + delay, 1);
        if (TypeParam::waits(t)) {
          w.move(t, times[which], 0, at(now));
        } else {
          w.insert(t, times[which], 0, at(now));
        }
      } else if (op == 3) {
        now += static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(c.longest_step));
        for (auto due = w.pop_due(now); due.timer != nullptr; due = w.pop_due(now)) {
          ASSERT_EQ(due.when, times[static_cast<std::size_t>(due.timer - timers.data())]);
          ASSERT_LE(due.when, now) << "early";
        }
        for (std::size_t left = 0; left < timers.size(); ++left) {
          if (!TypeParam::waits(timers[left])) continue;
          ASSERT_GT(times[left] + c.wheel.tick, now) << "late, at step " << i;
        }
      }
      ASSERT_EQ(w.verify(), "") << "at step " << i;
    }
    while (w.pop_any().timer != nullptr) {
    }
    EXPECT_EQ(w.size(), 0U);
    EXPECT_EQ(w.verify(), "");
  }
}

TEST(simple_wheel, rejects_a_delay_beyond_its_span_and_names_the_span) {
  simple_wheel w({.tick = 10 * ms, .size = 100});
  list_hook t;
  w.insert(t, 1 * s, 0, at(1));  // just fits
  w.erase(t);
  for (const std::int64_t when : {s + 20 * ms, INT64_MAX}) {
    try {
      w.insert(t, when, 0, at(1));
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
  EXPECT_THROW(w.insert(t, 10 * ms, s + 1, at(1)), std::invalid_argument);
  w.insert(t, 10 * ms, s, at(1));
}

TEST(simple_wheel, wakes_at_every_tick_while_a_timer_waits) {
  simple_wheel w({.tick = 10 * ms, .size = 100});
  list_hook t;
  w.insert(t, 50 * ms, 0, at(1));
  int wakes = 0;
  for (std::int64_t now = w.next(); now != 0; now = w.next(), ++wakes) w.pop_due(now);
  EXPECT_EQ(wakes, 5);
}

/// As after the machine was suspended: each bucket is visited once, none is missed, and later
/// timers are in the right ones.
TEST(simple_wheel, fires_everything_after_a_pause_of_more_than_a_turn) {
  for (const std::int64_t pause : {2 * s, 10 * s, 10 * s + 1, 1000 * s, 1000 * s + 7 * ms}) {
    simple_wheel w({.tick = 10 * ms, .size = 100});
    simple_wheel::hook early;
    simple_wheel::hook late;
    simple_wheel::hook next;
    w.insert(early, 20 * ms, 0, at(1));
    w.insert(late, 1 * s, 0, at(1));
    EXPECT_THAT(pop_all(w, pause), testing::ElementsAre(20 * ms, 1 * s)) << "after " << pause;
    ASSERT_EQ(w.verify(), "");
    w.insert(next, pause + 500 * ms, 0, at(pause));
    EXPECT_EQ(pop(w, pause + 500 * ms - 1), nullptr);
    EXPECT_EQ(pop(w, pause + 510 * ms), &next) << "after " << pause;
    ASSERT_EQ(w.verify(), "");
  }
}

TEST(simple_wheel, knows_the_first_tick_that_is_not_empty) {
  simple_wheel w({.tick = 10 * ms, .size = 100});
  EXPECT_EQ(w.next_exactly(), 0);
  list_hook far;
  list_hook near;
  w.insert(far, 900 * ms, 0, at(1));
  EXPECT_EQ(w.next_exactly(), 900 * ms);
  w.insert(near, 495 * ms, 0, at(1));
  EXPECT_EQ(w.next_exactly(), 500 * ms);
  EXPECT_EQ(pop(w, 500 * ms), &near);
  EXPECT_EQ(w.next_exactly(), 900 * ms);
}

/// Runs a wheel until it is empty, like a driver; returns how often it woke.
int drive(timing_wheel& w) {
  int wakes = 0;
  for (std::int64_t now = w.next(); now != 0; now = w.next(), ++wakes) {
    while (pop(w, now) != nullptr) {
    }
  }
  return wakes;
}

TEST(timing_wheel, wakes_for_no_empty_tick) {
  timing_wheel w({.tick = s, .size = 1000});
  timing_wheel::hook soon;
  timing_wheel::hook later;
  w.insert(soon, 200 * s, 0, at(1));
  w.insert(later, 850 * s, 0, at(1));
  EXPECT_EQ(drive(w), 2);
}

TEST(timing_wheel, wakes_once_more_for_each_level_that_a_timer_comes_down) {
  timing_wheel w({.tick = ms, .size = 20});
  timing_wheel::hook t;
  w.insert(t, 350 * ms + 350, 0, at(1));  // 20 ms on the first level, 400 ms on the second
  EXPECT_EQ(w.levels(), 2U);
  EXPECT_EQ(drive(w), 2);
  w.insert(t, 3'600 * s, 0, at(350 * ms));
  const auto levels = static_cast<int>(w.levels());
  EXPECT_LE(drive(w), levels);
}

TEST(timing_wheel, wakes_for_no_bucket_whose_timers_were_all_stopped) {
  timing_wheel w({.tick = ms, .size = 20});
  std::vector<timing_wheel::hook> timers(100);
  for (std::size_t i = 0; i < timers.size(); ++i) {
    w.insert(timers[i], static_cast<std::int64_t>(i + 1) * 7 * ms, 0, at(1));
  }
  for (std::size_t i = 0; i < timers.size(); ++i) {
    if (i != 50) w.erase(timers[i]);
  }
  EXPECT_LE(drive(w), static_cast<int>(w.levels()));
}

TEST(timing_wheel, has_room_for_every_time) {
  timing_wheel w({.tick = us, .size = 2});
  timing_wheel::hook end_of_time;
  timing_wheel::hook a_while;
  w.insert(end_of_time, INT64_MAX, 0, at(1));
  w.insert(a_while, 10 * us, 0, at(1));
  EXPECT_EQ(w.verify(), "");
  EXPECT_EQ(pop(w, 10 * us), &a_while);
  EXPECT_EQ(pop(w, INT64_MAX / 2), nullptr);
  EXPECT_TRUE(timing_wheel::waits(end_of_time));
  EXPECT_EQ(w.verify(), "");
}

TEST(timing_wheel, makes_levels_only_when_they_are_needed) {
  timing_wheel w({.tick = ms, .size = 20});
  EXPECT_EQ(w.levels(), 1U);
  timing_wheel::hook t;
  w.insert(t, 19 * ms, 0, at(1));
  EXPECT_EQ(w.levels(), 1U);
  w.erase(t);
  w.insert(t, 21 * ms, 0, at(1));
  EXPECT_EQ(w.levels(), 2U);
}

TEST(timing_wheel, needs_no_level_for_the_time_in_which_it_was_empty) {
  timing_wheel w({.tick = ms, .size = 20});
  timing_wheel::hook t;
  w.insert(t, 3600 * s + 5 * ms, 0, at(3600 * s));
  EXPECT_EQ(w.levels(), 1U);
  EXPECT_EQ(w.next(), 3600 * s + 5 * ms) << "it comes down from no level";
  w.move(t, 3600 * s + 22 * ms, 0, at(3600 * s + 4 * ms));
  EXPECT_EQ(w.levels(), 1U) << "nor for that in which this was the only one";
  EXPECT_EQ(w.next(), 3600 * s + 22 * ms);
}

TEST(timing_wheel, reads_the_clock_only_for_a_timer_that_is_alone) {
  timing_wheel w({.tick = ms, .size = 20});
  int reads = 0;
  const auto read = [&] { return ++reads, ms; };
  timing_wheel::hook first;
  timing_wheel::hook second;
  w.insert(first, 5 * ms, 0, read);
  w.move(first, 6 * ms, 0, read);
  EXPECT_EQ(reads, 2);
  w.insert(second, 5 * ms, 0, read);
  w.move(first, 7 * ms, 0, read);
  w.erase(second);
  EXPECT_EQ(reads, 2);
  w.move(first, 8 * ms, 0, read);
  EXPECT_EQ(reads, 3);
}

TEST(timing_wheel, lets_a_bucket_be_refilled_while_its_timers_move_down) {
  timing_wheel w({.tick = ms, .size = 2});
  std::vector<timing_wheel::hook> timers(64);
  for (std::size_t i = 0; i < timers.size(); ++i) {
    w.insert(timers[i], static_cast<std::int64_t>(i + 1) * ms, 0, at(1));
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

TEST(timing_wheel, returns_the_timers_of_one_tick_in_the_order_of_their_start) {
  timing_wheel w({.tick = ms, .size = 20});
  std::vector<timing_wheel::hook> timers(1000);
  for (auto& t : timers) w.insert(t, 5 * s, 0, at(1));
  for (auto& t : timers) ASSERT_EQ(pop(w, 5 * s), &t);
}

TEST(timing_wheel, fires_what_is_past_though_a_later_timer_has_its_bucket) {
  timing_wheel w({.tick = ms, .size = 20});
  timing_wheel::hook later;
  timing_wheel::hook past;
  w.insert(later, 105 * ms, 0, at(100 * ms));
  EXPECT_EQ(w.pop_due(100 * ms).timer, nullptr);
  w.insert(past, 85 * ms, 0, at(100 * ms));  // a turn of the lowest wheel earlier
  EXPECT_EQ(w.pop_due(101 * ms).timer, &past);
  EXPECT_EQ(w.pop_due(101 * ms).timer, nullptr);
  EXPECT_EQ(w.pop_due(107 * ms).timer, &later);
  EXPECT_EQ(w.verify(), "");
}

TEST(timing_wheel, remembers_which_timers_are_periodic) {
  timing_wheel w({.tick = ms, .size = 20});
  timing_wheel::hook once;
  timing_wheel::hook again;
  w.insert(once, s, 0, at(1));
  w.insert(again, s, s, at(1));
  EXPECT_FALSE(w.pop_due(s).periodic);
  EXPECT_TRUE(w.pop_due(s).periodic);
}

/// The slot of a stopped timer is reused, and a chunk with only stopped timers is freed.
TEST(timing_wheel, uses_memory_in_proportion_to_the_pending_timers) {
  timing_wheel w({.tick = ms, .size = 20});
  const auto n = static_cast<std::size_t>(test::scale(50'000, 5'000));
  std::mt19937_64 random(1);
  const auto some_time = [&] { return static_cast<std::int64_t>(s + random() % (60 * s)); };
  std::vector<timing_wheel::hook> timers(n);
  for (auto& t : timers) w.insert(t, some_time(), 0, at(1));
  const std::size_t full = w.bytes();
  EXPECT_LE(full, n * 20 + 30'000) << "besides a chunk for every bucket";
  for (std::size_t i = 0; i < 20 * n; ++i) {
    timing_wheel::hook& t = timers[random() % n];
    if (i % 2 == 0) {
      w.erase(t);
      w.insert(t, some_time(), 0, at(1));
    } else {
      w.move(t, some_time(), 0, at(1));
    }
  }
  EXPECT_LE(w.bytes(), full + full / 5) << "after " << 20 * n << " stops and starts";
  for (std::size_t i = 0; i < n; ++i) {
    if (i % 1000 != 0) w.erase(timers[i]);
  }
  EXPECT_LE(w.bytes(), full / 10 + w.size() * 512) << "with " << w.size() << " timers left";
  EXPECT_EQ(w.verify(), "");
}

/// Pages for a wheel's tables and one piece of memory for its chunks, and no more.
class scarce_pages final : public page_source {
 public:
  void* map(std::size_t bytes, std::size_t alignment) noexcept override {
    return left_-- > 0 ? system_pages().map(bytes, alignment) : nullptr;
  }
  void unmap(void* memory, std::size_t bytes) noexcept override {
    system_pages().unmap(memory, bytes);
  }
  void discard(void* memory, std::size_t bytes) noexcept override {
    system_pages().discard(memory, bytes);
  }
  void prefer_huge_pages(void*, std::size_t, bool) noexcept override {}

 private:
  int left_ = 2;
};

/// Uses all remaining chunks: a timer for each, in separate buckets. The last one, which found no
/// room, is not pending.
std::vector<timing_wheel::hook> take_all_memory(timing_wheel& w, std::int64_t bucket) {
  std::vector<timing_wheel::hook> timers(10'000);
  for (std::size_t i = 0; i < timers.size(); ++i) {
    try {
      w.insert(timers[i], static_cast<std::int64_t>(i + 2) * bucket, 0, at(1));
    } catch (const std::bad_alloc&) {
      timers.resize(i + 1);
    }
  }
  return timers;
}

TEST(timing_wheel, is_unchanged_if_there_is_no_memory_for_a_timer) {
  scarce_pages pages;
  timing_wheel w({.tick = ms, .size = 8192}, pages);
  timing_wheel::hook t;
  w.insert(t, 100 * s, 0, at(1));
  const auto timers = take_all_memory(w, 8192 * ms);
  ASSERT_LT(timers.size(), 10'000U);
  EXPECT_FALSE(timing_wheel::waits(timers.back()));
  EXPECT_THROW(w.move(t, 50 * ms, 0, at(1)), std::bad_alloc);
  EXPECT_EQ(w.size(), timers.size());
  EXPECT_EQ(w.verify(), "");
  EXPECT_EQ(w.pop_due(8192 * 12 * ms).timer, &timers[0]);
}

/// At whichever of the requests that the first timer makes.
TEST(timing_wheel, is_empty_if_there_is_no_memory_for_its_first_timer) {
  for (long nth = 1;; ++nth) {
    timing_wheel w({.tick = ms, .size = 20});
    timing_wheel::hook t;
    bool refused = false;
    test::fail(test::resource::memory, nth, 1);
    try {
      w.insert(t, 5 * ms, 0, at(1));
    } catch (const std::bad_alloc&) {
      refused = true;
    }
    const bool made = test::has_failed();
    test::fail_no_more();
    if (!made) {
      EXPECT_GT(nth, 1) << "it needs none";
      break;
    }
    if (!refused) w.erase(t);
    EXPECT_EQ(w.size(), 0U);
    EXPECT_EQ(w.verify(), "");
    w.insert(t, 5 * ms, 0, at(1));
    EXPECT_EQ(pop(w, 5 * ms), &t);
  }
}

/// Which was looked at just now, and is in the cache.
TEST(timing_wheel, puts_a_timer_into_the_place_of_the_bucket_that_was_left_last) {
  timing_wheel w({.tick = ms, .size = 20});
  std::vector<timing_wheel::hook> full(4 * 31);
  for (auto& t : full) w.insert(t, 5 * ms, 0, at(1));
  std::vector<std::uint32_t> left;
  for (const std::size_t n : {3U, 40U, 70U, 100U}) {
    left.push_back(full[n].slot);
    w.erase(full[n]);
  }
  std::vector<timing_wheel::hook> next(left.size());
  for (auto& t : next) {
    w.insert(t, 5 * ms, 0, at(1));
    EXPECT_EQ(t.slot, left.back());
    left.pop_back();
    EXPECT_EQ(w.verify(), "");
  }
}

/// The first request that is refused is made, and refused, again and again.
TEST(timing_wheel, keeps_nothing_of_a_timer_for_which_there_was_no_memory) {
  std::size_t usual = 0;
  {
    timing_wheel w({.tick = ms, .size = 20});
    timing_wheel::hook t;
    w.insert(t, 5 * ms, 0, at(1));
    usual = w.bytes();
  }
  bool made = true;
  for (long nth = 1; made; ++nth) {
    timing_wheel w({.tick = ms, .size = 20});
    timing_wheel::hook t;
    for (int i = 0; i < 100 && !timing_wheel::waits(t); ++i) {
      test::fail(test::resource::memory, i == 0 ? nth : 1, 1);
      try {
        w.insert(t, 5 * ms, 0, at(1));
      } catch (const std::bad_alloc&) {
      }
      if (i == 0) made = test::has_failed();
      test::fail_no_more();
    }
    if (!timing_wheel::waits(t)) w.insert(t, 5 * ms, 0, at(1));
    EXPECT_EQ(w.bytes(), usual) << "request " << nth;
  }
}

TEST(timing_wheel,
     loses_no_timer_and_fires_none_early_where_there_is_no_memory_to_bring_them_down) {
  scarce_pages pages;
  timing_wheel w({.tick = ms, .size = 8192}, pages);
  constexpr std::int64_t bucket = 8192 * ms;
  std::vector<timing_wheel::hook> crowd(310);
  for (std::size_t i = 0; i < crowd.size(); ++i) {
    w.insert(crowd[i], bucket + static_cast<std::int64_t>(i * 7 % crowd.size()) * ms, 0, at(1));
  }
  const auto others = take_all_memory(w, bucket);
  ASSERT_LT(others.size(), 10'000U);
  std::size_t fired = 0;
  for (std::int64_t now = bucket; now < bucket + 400 * ms; now += ms) {
    for (const std::int64_t when : pop_all(w, now)) {
      ASSERT_LE(when, now);
      ++fired;
    }
    ASSERT_EQ(w.verify(), "");
  }
  EXPECT_EQ(fired, crowd.size());
}

TEST(divisor, divides_like_operator_slash) {
  std::mt19937_64 random(1);
  std::vector<std::int64_t> numbers = {0, 1, 2, 3, 999, 1000, 1001, INT64_MAX - 1, INT64_MAX};
  for (int i = 0; i < 1000; ++i) {
    numbers.push_back(static_cast<std::int64_t>(random() >> (1 + random() % 63)));
  }
  for (const std::int64_t d : numbers) {
    if (d == 0) continue;
    for (const std::int64_t n : numbers) {
      ASSERT_EQ(divisor(d).quotient(n), n / d) << n << " by " << d;
      ASSERT_EQ(divisor(d).remainder(n), n % d) << n << " by " << d;
    }
  }
}

}  // namespace
}  // namespace verge::detail
