// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "../store/census.h"

/// How many delayed tasks are due in each minute of the next day, whether they are in memory or in
/// the store alone.
///
/// Each place in the index of delayed tasks that is written or removed is counted here: that is
/// exact, and costs an addition. What the store had before is counted once by a census, beside
/// everything else: all of the day when the server starts, and then an hour of it each hour. What
/// changes while a census is taken is added to its result.
///
///     now                                              end        end of the census
///      |################## known #####################|~~~ counted now ~~~|
///
/// Minutes are those of the wall clock. Pure: it knows no store and reads no clock.
namespace verge::server {

/// Counts from a minute on, which is a number of minutes since 1970.
struct minute_counts {
  std::int64_t first{0};
  std::deque<std::int64_t> counts;
  bool covers(std::int64_t m) const noexcept {
    return m >= first && m < first + static_cast<std::int64_t>(counts.size());
  }
  void add(std::int64_t m, std::int64_t by) noexcept {
    if (covers(m)) counts[static_cast<std::size_t>(m - first)] += by;
  }
};

class outlook {
 public:
  /// A place in the index of delayed tasks was added (1) or removed (-1).
  void count(wall_time due, std::int64_t by) noexcept;

  /// What has to be counted in the store now, if anything; not while a census is taken.
  std::optional<census_range> wants(wall_time now) const noexcept;
  void begin(const census_range& r);
  /// The census has ended, perhaps without a result.
  void end(const std::optional<std::vector<std::uint64_t>>& counted);

  /// Those due in what is left of this minute, and in each of the following; fewer minutes if no
  /// more are known.
  std::vector<std::uint64_t> ahead(wall_time now, std::size_t minutes) const;

 private:
  minute_counts known_;
  std::optional<minute_counts> pending_;  ///< what has changed in the part that is counted now
};

}  // namespace verge::server
