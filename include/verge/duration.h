// SPDX-License-Identifier: Apache-2.0
// Conversion of any duration to nanoseconds, without overflow.
//
// std::chrono converts by multiplication: converting hours::max() is signed overflow, and
// converting an infinite or NaN double is undefined. verge passes every duration through saturate()
// instead:
//
//   saturate(hours::max())                == nanoseconds::max()
//   saturate(duration<double>(INFINITY))  == nanoseconds::max()
//   saturate(duration<double, nano>(.5))  == nanoseconds(1)
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <limits>
#include <ratio>

#pragma GCC visibility push(default)

namespace verge {
namespace detail {

__extension__ using int128 = __int128;

// The nearest value of an integer type that is no wider than 64 bits.
template <std::integral To>
constexpr To clamp_to(int128 x) noexcept {
  using limits = std::numeric_limits<To>;
  if (x > limits::max()) return limits::max();
  if (x < limits::min()) return limits::min();
  return static_cast<To>(x);
}

// Rounds up. NaN becomes zero: a time-out of unknown length fires at once rather than never.
template <std::integral To>
constexpr To clamp_to(long double x) noexcept {
  using limits = std::numeric_limits<To>;
  if (x != x) return 0;
  if (x >= static_cast<long double>(limits::max())) return limits::max();
  if (x <= static_cast<long double>(limits::min())) return limits::min();
  const auto whole = static_cast<int128>(x);
  return clamp_to<To>(static_cast<long double>(whole) < x ? whole + 1 : whole);
}

}  // namespace detail

/// The duration in nanoseconds, rounded up (a timer is never early). A value out of range becomes
/// the nearest end of the range; NaN becomes zero.
template <class Rep, class Period>
constexpr std::chrono::nanoseconds saturate(std::chrono::duration<Rep, Period> d) noexcept {
  using std::chrono::nanoseconds;
  if constexpr (std::integral<Rep>) {
    // 64 bits times a ratio's numerator (63 bits) fits 128.
    using ratio = std::ratio_divide<Period, std::nano>;
    const detail::int128 scaled = detail::int128{d.count()} * ratio::num;
    const bool round_up = scaled > 0 && scaled % ratio::den != 0;
    return nanoseconds(detail::clamp_to<nanoseconds::rep>(scaled / ratio::den + round_up));
  } else {
    using real_nanoseconds = std::chrono::duration<long double, std::nano>;
    return nanoseconds(detail::clamp_to<nanoseconds::rep>(
        std::chrono::duration_cast<real_nanoseconds>(d).count()));
  }
}

/// The inverse: nanoseconds in another unit, rounded towards zero like duration_cast. A value out
/// of range becomes the nearest end of the range.
template <class To>
constexpr To saturate_to(std::chrono::nanoseconds d) noexcept {
  if constexpr (std::integral<typename To::rep>) {
    using ratio = std::ratio_divide<std::nano, typename To::period>;
    const detail::int128 scaled = detail::int128{d.count()} * ratio::num / ratio::den;
    return To(detail::clamp_to<typename To::rep>(scaled));
  } else {
    return std::chrono::duration_cast<To>(d);
  }
}

}  // namespace verge

#pragma GCC visibility pop
