// SPDX-License-Identifier: Apache-2.0
// Arithmetic on times: 64-bit nanoseconds that never overflow.
//
// Inside verge a time is a std::int64_t: nanoseconds of one monotonic clock, always positive. Zero
// means "no timer" in the fields that other threads read, and the largest value means `never`.
// Results stay within that range: a sum that does not fit is `never`, not a time in the past. (Go
// lets the sum wrap around and corrects it; in C++ signed overflow is undefined, so it is clamped
// first.)
#pragma once

#include <verge/duration.h>

#include <bit>
#include <chrono>
#include <cstdint>
#include <limits>

namespace verge::detail {

/// Later than any time that the clock reaches.
inline constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

/// The earliest time: times are positive.
inline constexpr std::int64_t first_time = 1;

constexpr std::int64_t saturating_add(std::int64_t a, std::int64_t b) noexcept {
  std::int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return b > 0 ? std::numeric_limits<std::int64_t>::max()
               : std::numeric_limits<std::int64_t>::min();
}

constexpr std::int64_t saturating_sub(std::int64_t a, std::int64_t b) noexcept {
  std::int64_t difference = 0;
  if (!__builtin_sub_overflow(a, b, &difference)) return difference;
  return b < 0 ? std::numeric_limits<std::int64_t>::max()
               : std::numeric_limits<std::int64_t>::min();
}

/// Clamps a number to a valid time.
constexpr std::int64_t as_time(std::int64_t t) noexcept { return t < first_time ? first_time : t; }

/// The due time of a timer started at `now` with delay `d`: now if `d` is zero or less, `never` if
/// the sum is beyond the clock's range.
constexpr std::int64_t when_after(std::int64_t now, std::int64_t d) noexcept {
  return as_time(d > 0 ? saturating_add(now, d) : now);
}

/// The firing time of a timer that is due at `when` and may be late by `slack`: the time in that
/// range with the most trailing zero bits. So timers with slack coincide without coordination, the
/// more often the more slack they have.
constexpr std::int64_t with_slack(std::int64_t when, std::int64_t slack) noexcept {
  if (slack <= 0) return when;
  const std::int64_t latest = saturating_add(when, slack);
  if (latest == never) return when;
  // `latest` and `when - 1` are equal above their highest differing bit, where `latest` has a one.
  // With zeros below that one, the result is still in the range.
  const auto differ = static_cast<std::uint64_t>(when - 1) ^ static_cast<std::uint64_t>(latest);
  const int bit = 63 - std::countl_zero(differ);
  // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): with slack, some bit differs
  return latest >> bit << bit;
}

/// The slack of a timer with delay `d` where timers are coalesced: an eighth of the delay, at most
/// 4 ms; none below 100 us, where so little saves nothing.
constexpr std::int64_t coalescing_slack(std::int64_t d) noexcept {
  if (d < 100'000) return 0;
  return d / 8 < 4'000'000 ? d / 8 : 4'000'000;
}

/// The time until `when`: zero if it has passed, `never` for `never`.
constexpr std::int64_t time_until(std::int64_t when, std::int64_t now) noexcept {
  if (when == never) return never;
  return when <= now ? 0 : saturating_sub(when, now);
}

/// The periodic rule: the first of `when`, `when + period`, `when + 2 * period`, ... that is after
/// `now`, so that a late ticker skips missed ticks and keeps its grid. For a timer that is due it
/// is
///
///   when + period * (1 + (now - when) / period)
///
/// written so that no step can overflow; beyond the range it is `never`. A timer that is not due
/// keeps its time. A period of zero or less gives `never`.
constexpr std::int64_t next_period(std::int64_t when, std::int64_t period,
                                   std::int64_t now) noexcept {
  if (period <= 0) return never;
  if (now < when) return as_time(when);
  // Since now >= when, the distance always fits into 64 unsigned bits.
  const auto late = static_cast<std::uint64_t>(now) - static_cast<std::uint64_t>(when);
  const auto into_period = static_cast<std::int64_t>(late % static_cast<std::uint64_t>(period));
  return as_time(saturating_add(now, period - into_period));
}

/// A delay of any unit, for when_after().
template <class Rep, class Period>
constexpr std::int64_t to_delay(std::chrono::duration<Rep, Period> d) noexcept {
  return saturate(d).count();
}

/// A time point of a clock with the same count as verge's (clock, std::chrono::steady_clock).
template <class Clock, class Duration>
constexpr std::int64_t to_time(std::chrono::time_point<Clock, Duration> t) noexcept {
  return as_time(saturate(t.time_since_epoch()).count());
}

}  // namespace verge::detail
