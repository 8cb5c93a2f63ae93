// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../model/task.h"
#include "cron.h"
#include "zone.h"

/// When something recurs: a cron expression in a time zone, or "every 10m".
///
/// "every" is aligned: its times are the multiples of the interval since 1970 in UTC, whenever it
/// was set. So "every 10m" is at :00, :10, :20.
///
/// When clocks are changed, expressions that are about times of day (cron::is_fixed) and others
/// differ, as in Vixie's cron:
///
///                        clocks go forward           clocks go back
///   30 2 * * *           once, at 3:30, which is     once, at the first 2:30
///                        where 2:30 would be
///   */10 * * * *,        times that do not exist     every time that exists: also those of the
///   0 * * * *            are left out                second 2:00 to 3:00
namespace verge::server::calendar {

class timetable {
 public:
  /// Nothing if `when` or `zone_name` is not right; `why` says what to do.
  static std::optional<timetable> parse(const std::string& when, const std::string& zone_name,
                                        std::string& why);

  /// The first time after this one. Nothing if there is none in fifty years.
  std::optional<wall_time> next(wall_time after) const noexcept;

  /// The latest times in [from, to], at most so many, in order.
  std::vector<wall_time> latest(wall_time from, wall_time to, std::size_t most) const;

 private:
  std::optional<std::int64_t> next_of_cron(std::int64_t utc) const noexcept;

  std::optional<cron> cron_;
  std::shared_ptr<const zone> zone_;
  nanoseconds interval_{0};
};

}  // namespace verge::server::calendar
