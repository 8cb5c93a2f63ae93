// Arithmetic on times: 64-bit nanoseconds that never overflow.
//
// Inside verge a time is a std::int64_t: nanoseconds of one monotonic clock, always positive. Zero
// is free to mean "no timer" in the fields that other threads read, and the largest value means
// `never`. Whatever a caller asks for stays within that range: a sum that does not fit is `never`,
// not a time in the past. (Go leaves this to wrap-around and repairs it afterwards; in C++ wrapping
// is undefined, so the clamp comes first.)
#pragma once

#include <verge/duration.h>

#include <bit>
#include <chrono>
#include <cstdint>
#include <limits>

namespace verge::detail {

/// The time that does not come.
inline constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

/// The first time there is: times are positive.
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

/// Any number as a time: positive.
constexpr std::int64_t as_time(std::int64_t t) noexcept { return t < first_time ? first_time : t; }

/// When a timer is due that is started at `now` with delay `d`: a delay of zero or less is due at
/// once, one that leads beyond the clock's range never.
constexpr std::int64_t when_after(std::int64_t now, std::int64_t d) noexcept {
  return as_time(d > 0 ? saturating_add(now, d) : now);
}

/// When a timer fires that is due at `when` and may be late by `slack`: the roundest time, in
/// binary, that is in between. So timers with slack meet at the same moments, the more the more
/// slack they have, without knowing of each other.
constexpr std::int64_t with_slack(std::int64_t when, std::int64_t slack) noexcept {
  if (slack <= 0) return when;
  const std::int64_t latest = saturating_add(when, slack);
  if (latest == never) return when;
  // Up to the highest bit in which the last moment differs from the one before the first, they are
  // alike; there the later one has a one. Zeros after that one are still within.
  const auto differ = static_cast<std::uint64_t>(when - 1) ^ static_cast<std::uint64_t>(latest);
  const int bit = 63 - std::countl_zero(differ);
  // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): with slack, some bit differs
  return latest >> bit << bit;
}

/// How long until `when`: zero if it has come, `never` if it never does.
constexpr std::int64_t time_until(std::int64_t when, std::int64_t now) noexcept {
  if (when == never) return never;
  return when <= now ? 0 : saturating_sub(when, now);
}

/// The periodic rule: the first of `when`, `when + period`, `when + 2 * period`, ... that is after
/// `now`, so that a late ticker skips what it missed and keeps its grid. For a timer that is due it
/// is
///
///   when + period * (1 + (now - when) / period)
///
/// written so that no step can overflow; past the range it is `never`. One that is not due yet
/// keeps its time. A period of zero or less has no next time.
constexpr std::int64_t next_period(std::int64_t when, std::int64_t period,
                                   std::int64_t now) noexcept {
  if (period <= 0) return never;
  if (now < when) return as_time(when);
  // From now >= when the distance fits 64 unsigned bits, even from one end of the range to the
  // other.
  const auto late = static_cast<std::uint64_t>(now) - static_cast<std::uint64_t>(when);
  const auto into_period = static_cast<std::int64_t>(late % static_cast<std::uint64_t>(period));
  return as_time(saturating_add(now, period - into_period));
}

/// A delay of any unit, for when_after().
template <class Rep, class Period>
constexpr std::int64_t to_delay(std::chrono::duration<Rep, Period> d) noexcept {
  return saturate(d).count();
}

/// A time point of a clock that counts as verge's does (clock, std::chrono::steady_clock).
template <class Clock, class Duration>
constexpr std::int64_t to_time(std::chrono::time_point<Clock, Duration> t) noexcept {
  return as_time(saturate(t.time_since_epoch()).count());
}

}  // namespace verge::detail
