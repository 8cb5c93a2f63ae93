// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// Dates of the Gregorian calendar, and days since 1970, without time zones.
namespace verge::server::calendar {

struct date {
  std::int64_t year{1970};
  unsigned month{1};  ///< 1 to 12
  unsigned day{1};    ///< 1 to 31
  friend auto operator<=>(const date&, const date&) = default;
};

constexpr std::int64_t floor_div(std::int64_t a, std::int64_t b) noexcept {
  return a / b - (a % b < 0 ? 1 : 0);
}

/// Years are counted from March: then the day that not every year has is the last one. Howard
/// Hinnant's "chrono-Compatible Low-Level Date Algorithms" has the proof.
constexpr std::int64_t days_of(const date& d) noexcept {
  const std::int64_t y = d.year - (d.month <= 2 ? 1 : 0);
  const std::int64_t era = floor_div(y, 400);
  const std::int64_t year_of_era = y - era * 400;
  const std::int64_t month = (d.month + 9) % 12;
  const std::int64_t day_of_year = (153 * month + 2) / 5 + d.day - 1;
  const std::int64_t day_of_era =
      year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
  return era * 146'097 + day_of_era - 719'468;
}

constexpr date date_of(std::int64_t days) noexcept {
  days += 719'468;
  const std::int64_t era = floor_div(days, 146'097);
  const std::int64_t day_of_era = days - era * 146'097;
  const std::int64_t year_of_era =
      (day_of_era - day_of_era / 1'460 + day_of_era / 36'524 - day_of_era / 146'096) / 365;
  const std::int64_t day_of_year =
      day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const std::int64_t month = (5 * day_of_year + 2) / 153;
  date d;
  d.day = static_cast<unsigned>(day_of_year - (153 * month + 2) / 5 + 1);
  d.month = static_cast<unsigned>(month < 10 ? month + 3 : month - 9);
  d.year = year_of_era + era * 400 + (d.month <= 2 ? 1 : 0);
  return d;
}

/// 0 is Sunday.
constexpr unsigned weekday_of(std::int64_t days) noexcept {
  return static_cast<unsigned>(days + 4 - floor_div(days + 4, 7) * 7);
}

constexpr bool is_leap(std::int64_t year) noexcept {
  return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

constexpr unsigned days_in(std::int64_t year, unsigned month) noexcept {
  if (month == 2) return is_leap(year) ? 29 : 28;
  return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

}  // namespace verge::server::calendar
