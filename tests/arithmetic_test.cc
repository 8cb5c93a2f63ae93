// SPDX-License-Identifier: Apache-2.0

// Arithmetic on times, at the ends of the range and against a plain 128-bit reference. Under the
// undefined-behaviour sanitizer these tests also show that nothing overflows.
#include <clock/arithmetic.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
using verge::saturate;
using verge::saturate_to;
using verge::detail::as_time;
using verge::detail::int128;
using verge::detail::never;
using verge::detail::next_period;
using verge::detail::saturating_add;
using verge::detail::saturating_sub;
using verge::detail::time_until;
using verge::detail::to_delay;
using verge::detail::to_time;
using verge::detail::when_after;

constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();

std::int64_t clamp(int128 x, std::int64_t low = lowest) {
  if (x < low) return low;
  return x > highest ? highest : static_cast<std::int64_t>(x);
}

std::int64_t reference_when_after(std::int64_t now, std::int64_t d) {
  return clamp(d > 0 ? int128{now} + d : int128{now}, 1);
}

std::int64_t reference_next_period(std::int64_t when, std::int64_t period, std::int64_t now) {
  if (period <= 0) return never;
  if (now < when) return clamp(when, 1);
  return clamp(int128{when} + int128{period} * (1 + (int128{now} - when) / period), 1);
}

// Where sums and products overflow: around zero, around both ends, around their halves and roots.
std::vector<std::int64_t> extremes() {
  std::vector<std::int64_t> table;
  for (const std::int64_t base :
       {std::int64_t{0}, lowest, highest, lowest / 2, highest / 2, highest / 3,
        std::int64_t{1} << 31, std::int64_t{1} << 32, std::int64_t{3037000499},
        std::int64_t{1'000'000'000}, std::int64_t{86'400'000'000'000}}) {
    for (std::int64_t offset = -3; offset <= 3; ++offset) {
      const int128 value = int128{base} + offset;
      if (value >= lowest && value <= highest) table.push_back(static_cast<std::int64_t>(value));
      if (-value >= lowest && -value <= highest) table.push_back(static_cast<std::int64_t>(-value));
    }
  }
  return table;
}

void expect_all_as_the_reference(std::int64_t a, std::int64_t b, std::int64_t c) {
  ASSERT_EQ(saturating_add(a, b), clamp(int128{a} + b)) << a << " + " << b;
  ASSERT_EQ(saturating_sub(a, b), clamp(int128{a} - b)) << a << " - " << b;
  ASSERT_EQ(when_after(a, b), reference_when_after(a, b)) << "now " << a << ", delay " << b;
  ASSERT_EQ(next_period(a, b, c), reference_next_period(a, b, c))
      << "when " << a << ", period " << b << ", now " << c;
}

TEST(arithmetic, agrees_with_the_reference_over_all_extremes) {
  const auto table = extremes();
  for (const auto a : table) {
    for (const auto b : table) {
      for (const auto c : table) {
        ASSERT_NO_FATAL_FAILURE(expect_all_as_the_reference(a, b, c));
      }
    }
  }
}

TEST(arithmetic, agrees_with_the_reference_on_random_numbers_of_every_magnitude) {
  std::mt19937_64 random(20240229);
  const auto number = [&random] {
    const auto magnitude = random() % 64;
    return static_cast<std::int64_t>(random()) >> magnitude;
  };
  for (int i = 0; i < 2'000'000; ++i) {
    const auto a = number(), b = number(), c = number();
    ASSERT_NO_FATAL_FAILURE(expect_all_as_the_reference(a, b, c));
  }
}

TEST(arithmetic, a_ticker_seen_late_takes_the_first_grid_point_after_now) {
  EXPECT_EQ(next_period(100, 10, 100), 110);
  EXPECT_EQ(next_period(100, 10, 109), 110);
  EXPECT_EQ(next_period(100, 10, 110), 120);
  EXPECT_EQ(next_period(100, 10, 1'000'003), 1'000'010);
}

TEST(arithmetic, a_ticker_that_is_not_due_keeps_its_time) {
  EXPECT_EQ(next_period(100, 10, 99), 100);
  EXPECT_EQ(next_period(100, 10, lowest), 100);
}

TEST(arithmetic, a_period_past_the_range_or_none_has_no_next_time) {
  EXPECT_EQ(next_period(100, highest, 100), never);
  EXPECT_EQ(next_period(100, 0, 100), never);
  EXPECT_EQ(next_period(100, -5, 100), never);
  EXPECT_EQ(next_period(never, 10, never), never);
}

TEST(arithmetic, a_delay_of_zero_or_less_is_due_at_once) {
  EXPECT_EQ(when_after(1000, 0), 1000);
  EXPECT_EQ(when_after(1000, -1), 1000);
  EXPECT_EQ(when_after(1000, lowest), 1000);
}

TEST(arithmetic, a_delay_past_the_range_is_never) {
  EXPECT_EQ(when_after(1, highest), never);
  EXPECT_EQ(when_after(highest - 5, 6), never);
  EXPECT_EQ(when_after(highest - 5, 4), highest - 1);
}

TEST(arithmetic, a_time_is_always_positive) {
  EXPECT_EQ(when_after(0, 0), 1);
  EXPECT_EQ(when_after(lowest, 1), 1);
  EXPECT_EQ(next_period(lowest, 1, lowest), 1);
  EXPECT_EQ(as_time(lowest), 1);
  EXPECT_EQ(as_time(highest), highest);
}

TEST(arithmetic, the_time_until_is_zero_when_past_and_never_when_never) {
  EXPECT_EQ(time_until(100, 40), 60);
  EXPECT_EQ(time_until(100, 100), 0);
  EXPECT_EQ(time_until(100, 101), 0);
  EXPECT_EQ(time_until(never, 100), never);
  EXPECT_EQ(time_until(never - 1, lowest), highest);
}

TEST(arithmetic, is_usable_at_compile_time) {
  static_assert(when_after(5, 10) == 15);
  static_assert(next_period(100, 10, 110) == 120);
  static_assert(saturate(std::chrono::hours::max()) == nanoseconds::max());
  static_assert(to_delay(1.5s) == 1'500'000'000);
}

TEST(durations, that_do_not_fit_become_the_ends_of_the_range) {
  EXPECT_EQ(saturate(std::chrono::hours::max()), nanoseconds::max());
  EXPECT_EQ(saturate(std::chrono::hours::min()), nanoseconds::min());
  EXPECT_EQ(saturate(std::chrono::years::max()), nanoseconds::max());
  EXPECT_EQ(saturate(std::chrono::microseconds::max()), nanoseconds::max());
  EXPECT_EQ(saturate(nanoseconds::max()), nanoseconds::max());
  EXPECT_EQ(saturate(nanoseconds::min()), nanoseconds::min());
  using unsigned_weeks = std::chrono::duration<std::uint64_t, std::ratio<604800>>;
  EXPECT_EQ(saturate(unsigned_weeks::max()), nanoseconds::max());
  EXPECT_EQ(saturate(unsigned_weeks(2)), nanoseconds(14 * 24h));
}

TEST(durations, of_real_numbers_are_defined_for_every_value) {
  using seconds = std::chrono::duration<double>;
  using limits = std::numeric_limits<double>;
  EXPECT_EQ(saturate(seconds(limits::infinity())), nanoseconds::max());
  EXPECT_EQ(saturate(seconds(-limits::infinity())), nanoseconds::min());
  EXPECT_EQ(saturate(seconds(limits::quiet_NaN())), 0ns);
  EXPECT_EQ(saturate(seconds(limits::max())), nanoseconds::max());
  EXPECT_EQ(saturate(seconds(limits::lowest())), nanoseconds::min());
  EXPECT_EQ(saturate(seconds(limits::denorm_min())), 1ns);
  EXPECT_EQ(saturate(seconds(-limits::denorm_min())), 0ns);
  EXPECT_EQ(saturate(seconds(0.25)), 250ms);
  EXPECT_EQ(saturate(seconds(-0.25)), -250ms);
  EXPECT_EQ(saturate(std::chrono::duration<float, std::milli>(1.5F)), 1500us);
  using real_nanoseconds = std::chrono::duration<long double, std::nano>;
  EXPECT_EQ(saturate(real_nanoseconds(0x1p63L)), nanoseconds::max());
  EXPECT_EQ(saturate(real_nanoseconds(std::nextafter(0x1p63L, 0.0L))), nanoseconds::max());
  EXPECT_EQ(saturate(real_nanoseconds(-0x1p63L)), nanoseconds::min());
}

TEST(durations, finer_than_nanoseconds_are_rounded_up) {
  using picoseconds = std::chrono::duration<std::int64_t, std::pico>;
  EXPECT_EQ(saturate(picoseconds(1)), 1ns);
  EXPECT_EQ(saturate(picoseconds(1000)), 1ns);
  EXPECT_EQ(saturate(picoseconds(1001)), 2ns);
  EXPECT_EQ(saturate(picoseconds(-1)), 0ns);
  EXPECT_EQ(saturate(picoseconds::max()), nanoseconds(highest / 1000 + 1));
  using thirds = std::chrono::duration<std::int64_t, std::ratio<1, 3>>;
  EXPECT_EQ(saturate(thirds(1)), 333'333'334ns);
}

TEST(durations, come_back_in_any_unit) {
  EXPECT_EQ(saturate_to<std::chrono::milliseconds>(1'999'999ns), 1ms);
  EXPECT_EQ(saturate_to<std::chrono::milliseconds>(-1'999'999ns), -1ms);
  EXPECT_EQ(saturate_to<std::chrono::hours>(nanoseconds::max()), 2562047h);
  using picoseconds = std::chrono::duration<std::int64_t, std::pico>;
  EXPECT_EQ(saturate_to<picoseconds>(nanoseconds::max()), picoseconds::max());
  EXPECT_EQ(saturate_to<picoseconds>(nanoseconds::min()), picoseconds::min());
  EXPECT_EQ(saturate_to<picoseconds>(5ns), picoseconds(5000));
  using byte_seconds = std::chrono::duration<std::int8_t>;
  EXPECT_EQ(saturate_to<byte_seconds>(1h), byte_seconds(127));
  EXPECT_EQ(saturate_to<byte_seconds>(-1h), byte_seconds(-128));
  EXPECT_DOUBLE_EQ(saturate_to<std::chrono::duration<double>>(1500ms).count(), 1.5);
}

TEST(durations, become_times_through_time_points) {
  using std::chrono::steady_clock;
  EXPECT_EQ(to_time(steady_clock::time_point(5s)), 5'000'000'000);
  EXPECT_EQ(to_time(steady_clock::time_point::max()), never);
  EXPECT_EQ(to_time(steady_clock::time_point::min()), 1);
  using hours_point = std::chrono::time_point<steady_clock, std::chrono::hours>;
  EXPECT_EQ(to_time(hours_point::max()), never);
}

}  // namespace
