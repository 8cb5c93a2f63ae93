// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Cron expressions: five fields, as Vixie's cron has them.
///
///   minute hour day-of-month month day-of-week
///   0-59   0-23 1-31         1-12  0-7 (0 and 7 are Sunday)
///
/// A field is a list of values, ranges a-b, and both with a step /n; * is all of them. Months and
/// days of the week have English names of three letters. If neither of the two fields of days
/// begins with *, a day that fits either one is meant; otherwise it has to fit both. @yearly,
/// @annually, @monthly, @weekly, @daily, @midnight and @hourly stand for the usual expressions.
namespace verge::server::calendar {

class cron {
 public:
  /// Nothing if it is none; `why` says what is wrong.
  static std::optional<cron> parse(std::string_view text, std::string& why);

  /// The first local time after this one that fits, to the minute, in seconds since 1970 as if
  /// local time were UTC. Nothing if there is none in the next fifty years.
  std::optional<std::int64_t> next(std::int64_t local) const noexcept;

  /// Neither minutes nor hours begin with *: it is about times of day, and not about how much time
  /// passes. The two differ when the clock is changed (timetable.h).
  bool is_fixed() const noexcept { return is_fixed_; }

 private:
  bool fits_day(std::int64_t year, unsigned month, unsigned day) const noexcept;

  std::uint64_t minutes_{0};
  std::uint64_t hours_{0};
  std::uint64_t days_{0};
  std::uint64_t months_{0};
  std::uint64_t weekdays_{0};
  bool either_day_{false};
  bool is_fixed_{false};
};

}  // namespace verge::server::calendar
