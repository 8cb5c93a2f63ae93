// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <clock/arithmetic.h>

namespace verge::detail {

/// The ticks of a ticker that are due and have not been delivered: sent, or their call begun. They
/// are counted, not stored: the first is at `next`, the others follow a period apart. The
/// caller has the lock of the ticker.
class owed_ticks {
 public:
  /// From here on the first tick is due at `when`, and nothing is owed.
  void start(std::int64_t when, std::int64_t period) noexcept {
    next_ = when;
    period_ = period;
    count_ = 0;
  }
  void forget() noexcept { count_ = 0; }

  /// Every tick up to `now` is owed.
  void add_all_until(std::int64_t now) noexcept {
    const std::int64_t first_new =
        saturating_add(next_, static_cast<std::int64_t>(count_) * period_);
    if (now >= first_new) count_ += static_cast<std::uint64_t>((now - first_new) / period_) + 1;
  }
  /// One tick is owed, however many were due.
  void owe_one() noexcept { count_ = 1; }

  bool any() const noexcept { return count_ != 0; }
  /// The time of the first tick that is owed.
  std::int64_t next() const noexcept { return next_; }
  std::int64_t period() const noexcept { return period_; }
  /// It has been delivered.
  void deliver_one() noexcept {
    --count_;
    next_ = saturating_add(next_, period_);
  }

 private:
  std::int64_t next_{0};
  std::int64_t period_{0};
  std::uint64_t count_{0};
};

}  // namespace verge::detail
