// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

/// How late a sleeping thread wakes: what it asked for and what it got, in two numbers per sleep.
/// A precise timer's sleeper aims early by this.
///
/// The estimate follows the 95th percentile: it rises by 19 steps when a wake-up was later than the
/// estimate, and falls by one when it was not, so that it stands still where that is one in twenty.
/// A step is a 256th of it. One wake-up that was late by 10 ms, on a busy machine, moves it no
/// further than one that was a little too late.
///
/// Not thread-safe: it belongs to the worker that has the turn to sleep (poll_turn.h).
namespace verge::detail {

class wake_up_lag {
 public:
  /// To wake earlier than this would cost more than a precise timer is worth.
  static constexpr std::int64_t most = 200'000;

  /// How early to aim, in nanoseconds.
  [[nodiscard]] std::int64_t estimate() const noexcept { return estimate_; }

  /// A thread that slept until a time woke `late` nanoseconds after it.
  void record(std::int64_t late) noexcept {
    const std::int64_t step = estimate_ / 256 + 1;
    estimate_ =
        std::clamp(late > estimate_ ? estimate_ + 19 * step : estimate_ - step, least, most);
  }

 private:
  /// No thread wakes faster.
  static constexpr std::int64_t least = 5'000;

  std::int64_t estimate_{100'000};
};

}  // namespace verge::detail
