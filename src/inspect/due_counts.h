// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace verge::detail {

/// How many timers are due in which time, in powers of two of nanoseconds.
struct due_counts {
  static constexpr unsigned first_power = 10;
  static constexpr unsigned powers = 52;

  /// The n-th counts those due in 2^(first_power + n) ns or more, and less than twice that. The
  /// first has those that are due earlier as well, the last those that are due later.
  std::array<std::uint64_t, powers> by_power{};
  std::uint64_t overdue{0};

  /// `left` is the time until it is due, in nanoseconds.
  void add(std::int64_t left) noexcept {
    if (left <= 0) {
      ++overdue;
      return;
    }
    const unsigned power = static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(left)));
    ++by_power[std::clamp(power, first_power + 1, first_power + powers) - first_power - 1];
  }
};

}  // namespace verge::detail
