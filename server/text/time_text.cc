// SPDX-License-Identifier: Apache-2.0

#include "time_text.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <chrono>
#include <limits>
#include <utility>

namespace verge::server {

namespace {

/// Takes exactly `digits` of them off the front.
std::optional<int> take_digits(std::string_view& text, std::size_t digits) {
  if (text.size() < digits) return std::nullopt;
  int n = 0;
  for (std::size_t i = 0; i < digits; ++i) {
    if (text[i] < '0' || text[i] > '9') return std::nullopt;
    n = n * 10 + (text[i] - '0');
  }
  text.remove_prefix(digits);
  return n;
}

bool take(std::string_view& text, char one, char other) {
  if (text.empty() || (text.front() != one && text.front() != other)) return false;
  text.remove_prefix(1);
  return true;
}

/// The digits after the point, in nanoseconds, rounded up.
std::optional<nanoseconds> take_fraction(std::string_view& text) {
  nanoseconds n = 0;
  nanoseconds unit = second / 10;
  bool more = false;
  std::size_t digits = 0;
  for (; !text.empty() && text.front() >= '0' && text.front() <= '9'; ++digits) {
    const int digit = text.front() - '0';
    text.remove_prefix(1);
    n += digit * unit;
    if (unit == 0 && digit != 0) more = true;
    unit /= 10;
  }
  if (digits == 0) return std::nullopt;
  return n + (more ? 1 : 0);
}

/// How far local time is ahead of UTC, in minutes.
std::optional<int> take_offset(std::string_view& text) {
  if (take(text, 'Z', 'z')) return 0;
  const bool ahead = take(text, '+', '+');
  if (!ahead && !take(text, '-', '-')) return std::nullopt;
  const auto hours = take_digits(text, 2);
  if (!hours || !take(text, ':', ':')) return std::nullopt;
  const auto minutes = take_digits(text, 2);
  if (!minutes || *hours > 23 || *minutes > 59) return std::nullopt;
  return (*hours * 60 + *minutes) * (ahead ? 1 : -1);
}

}  // namespace

std::optional<nanoseconds> parse_duration(std::string_view text, nanoseconds bare) {
  std::uint64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc()) return std::nullopt;
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const std::array<std::pair<std::string_view, nanoseconds>, 6> units{{{"", bare},
                                                                       {"s", second},
                                                                       {"ms", second / 1000},
                                                                       {"m", 60 * second},
                                                                       {"h", 3600 * second},
                                                                       {"d", 86'400 * second}}};
  for (const auto& [name, length] : units) {
    if (name != unit) continue;
    if (n > static_cast<std::uint64_t>(longest / length)) return std::nullopt;
    return static_cast<nanoseconds>(n) * length;
  }
  return std::nullopt;
}

std::optional<wall_time> parse_rfc3339(std::string_view text) {
  using namespace std::chrono;
  const auto year_number = take_digits(text, 4);
  if (!year_number || !take(text, '-', '-')) return std::nullopt;
  const auto month_number = take_digits(text, 2);
  if (!month_number || !take(text, '-', '-')) return std::nullopt;
  const auto day_number = take_digits(text, 2);
  if (!day_number || !take(text, 'T', 't')) return std::nullopt;
  const auto hour = take_digits(text, 2);
  if (!hour || !take(text, ':', ':')) return std::nullopt;
  const auto minutes = take_digits(text, 2);
  if (!minutes || !take(text, ':', ':')) return std::nullopt;
  const auto sec = take_digits(text, 2);
  if (!sec) return std::nullopt;
  std::int64_t fraction = 0;
  if (take(text, '.', '.')) {
    const auto digits = take_fraction(text);
    if (!digits) return std::nullopt;
    fraction = *digits;
  }
  const auto offset = take_offset(text);
  if (!offset || !text.empty()) return std::nullopt;
  const year_month_day date(year(*year_number), month(static_cast<unsigned>(*month_number)),
                            day(static_cast<unsigned>(*day_number)));
  // 60 is a leap second, which ends where the next minute begins.
  if (!date.ok() || *hour > 23 || *minutes > 59 || *sec > 60) return std::nullopt;
  const std::int64_t at = sys_days(date).time_since_epoch().count() * std::int64_t{86'400} +
                          *hour * 3600 + *minutes * 60 + *sec - *offset * 60;
  if (at < 0 || at >= std::numeric_limits<wall_time>::max() / second) return std::nullopt;
  return at * second + fraction;
}

std::string format_rfc3339(wall_time t) {
  using namespace std::chrono;
  std::int64_t whole = t / second;
  std::int64_t rest = t % second;
  if (rest < 0) {
    rest += second;
    --whole;
  }
  const sys_seconds at{seconds(whole)};
  const auto midnight = floor<days>(at);
  const year_month_day date(midnight);
  const auto of_day = (at - midnight).count();
  std::string out =
      fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", static_cast<int>(date.year()),
                  static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                  of_day / 3600, of_day / 60 % 60, of_day % 60);
  if (rest != 0) {
    if (rest % 1'000'000 == 0) {
      out += fmt::format(".{:03}", rest / 1'000'000);
    } else if (rest % 1000 == 0) {
      out += fmt::format(".{:06}", rest / 1000);
    } else {
      out += fmt::format(".{:09}", rest);
    }
  }
  return out + "Z";
}

}  // namespace verge::server
