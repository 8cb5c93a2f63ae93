// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include <verge/runtime.h>

/// What a runtime did in each of the last seconds, so that a page that is opened now has a past.
///
/// Ground rules
///  - add() is called by one task of the inspector; `lock_` guards what it has made.
namespace verge::detail {

/// One second, or as long as it was between two looks.
struct history_second {
  /// Lateness by powers of two, from 1 us: the first is all below 2 us, the last all from 17 s.
  static constexpr std::size_t lateness_rows = 25;
  static constexpr unsigned first_power = 10;

  std::uint64_t number{0};
  double length{0};  ///< in seconds
  std::uint64_t fired{0};
  std::uint64_t started{0};
  std::uint64_t stopped{0};
  std::uint64_t reset{0};
  std::uint64_t stolen{0};  ///< timers and tasks
  std::uint64_t wakeups{0};
  std::uint64_t turns{0};
  std::uint64_t stalls{0};
  std::vector<unsigned> busy;  ///< of each processor, in thousandths
  std::array<std::uint64_t, lateness_rows> lateness{};
};

class history {
 public:
  static constexpr std::size_t kept = 300;

  /// `now` is in seconds.
  void add(const runtime_stats& figures, double now);
  /// Those with a number greater than that, oldest first.
  std::vector<history_second> since(std::uint64_t number) const;
  /// The last one.
  history_second last() const;

 private:
  runtime_stats before_;
  double before_at_{0};
  bool any_{false};

  mutable std::mutex lock_;
  std::deque<history_second> seconds_;
  std::uint64_t count_{0};
};

}  // namespace verge::detail
