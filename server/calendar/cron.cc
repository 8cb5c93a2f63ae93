// SPDX-License-Identifier: Apache-2.0

#include "cron.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <span>
#include <utility>
#include <vector>

#include "civil.h"

namespace verge::server::calendar {

namespace {

constexpr std::int64_t day_seconds = 86'400;
constexpr std::int64_t years_ahead = 50;

constexpr std::array<std::string_view, 12> month_names{"jan", "feb", "mar", "apr", "may", "jun",
                                                       "jul", "aug", "sep", "oct", "nov", "dec"};
constexpr std::array<std::string_view, 7> weekday_names{"sun", "mon", "tue", "wed",
                                                        "thu", "fri", "sat"};

struct field {
  const char* name;
  unsigned least;
  unsigned most;
  std::span<const std::string_view> names;
};
constexpr std::array<field, 5> fields{
    field{"minute", 0, 59, {}}, field{"hour", 0, 23, {}}, field{"day of the month", 1, 31, {}},
    field{"month", 1, 12, month_names}, field{"day of the week", 0, 7, weekday_names}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 7> shorthands{
    {{"@yearly", "0 0 1 1 *"},
     {"@annually", "0 0 1 1 *"},
     {"@monthly", "0 0 1 * *"},
     {"@weekly", "0 0 * * 0"},
     {"@daily", "0 0 * * *"},
     {"@midnight", "0 0 * * *"},
     {"@hourly", "0 * * * *"}}};

bool same(std::string_view a, std::string_view b) noexcept {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return (x >= 'A' && x <= 'Z' ? x + 32 : x) == y; });
}

std::optional<unsigned> value_of(std::string_view text, const field& f) {
  for (std::size_t i = 0; i < f.names.size(); ++i) {
    if (same(text, f.names[i])) return static_cast<unsigned>(i) + f.least;
  }
  unsigned n = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, n);
  if (text.empty() || error != std::errc() || at != end || n < f.least || n > f.most) {
    return std::nullopt;
  }
  return n;
}

std::optional<unsigned> step_of(std::string_view text, const field& f) {
  unsigned n = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, n);
  if (text.empty() || error != std::errc() || at != end || n == 0 || n > f.most) {
    return std::nullopt;
  }
  return n;
}

/// One of a list: "5", "1-5", "*/2", "mon-fri/2". A value with a step goes on to the end.
bool add_item(std::string_view item, const field& f, std::uint64_t& bits) {
  const auto slash = item.find('/');
  const bool has_step = slash != item.npos;
  unsigned step = 1;
  if (has_step) {
    const auto given = step_of(item.substr(slash + 1), f);
    if (!given) return false;
    step = *given;
    item = item.substr(0, slash);
  }
  unsigned first = f.least;
  unsigned last = f.most;
  if (item != "*") {
    const auto dash = item.find('-');
    const auto from = value_of(item.substr(0, dash), f);
    if (!from) return false;
    first = *from;
    if (dash != item.npos) {
      const auto to = value_of(item.substr(dash + 1), f);
      if (!to || *to < first) return false;
      last = *to;
    } else if (!has_step) {
      last = first;
    }
  }
  for (unsigned n = first; n <= last; n += step) bits |= std::uint64_t{1} << n;
  return true;
}

bool parse_field(std::string_view text, const field& f, std::uint64_t& bits, std::string& why) {
  bits = 0;
  std::string_view rest = text;
  for (bool more = true; more;) {
    const auto comma = std::min(rest.find(','), rest.size());
    if (!add_item(rest.substr(0, comma), f, bits)) {
      why = "the " + std::string(f.name) + " '" + std::string(text) + "' has to be values from " +
            std::to_string(f.least) + " to " + std::to_string(f.most) +
            ", like *, 5, 1-5, */2 or 1,3" + (f.names.empty() ? "" : ", or names of three letters");
      return false;
    }
    more = comma < rest.size();
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return true;
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (true) {
    const auto begin = text.find_first_not_of(" \t");
    if (begin == text.npos) return words;
    const auto end = std::min(text.find_first_of(" \t", begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    text.remove_prefix(end);
  }
}

/// The first bit at or after this one; 64 if there is none.
unsigned bit_from(std::uint64_t bits, unsigned at) noexcept {
  if (at >= 64) return 64;
  return static_cast<unsigned>(std::countr_zero(bits >> at << at));
}

}  // namespace

std::optional<cron> cron::parse(std::string_view text, std::string& why) {
  for (const auto& [name, meaning] : shorthands) {
    if (same(text, name)) text = meaning;
  }
  const auto words = words_of(text);
  if (words.size() != fields.size()) {
    why = text.starts_with('@')
              ? "there are @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly"
              : "a cron expression has five fields: minute, hour, day of the month, month and day "
                "of the week, like 30 2 * * mon-fri";
    return std::nullopt;
  }
  cron c;
  const std::array<std::uint64_t*, 5> bits{&c.minutes_, &c.hours_, &c.days_, &c.months_,
                                           &c.weekdays_};
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (!parse_field(words[i], fields[i], *bits[i], why)) return std::nullopt;
  }
  if ((c.weekdays_ & (1U << 7)) != 0) c.weekdays_ |= 1;  // Sunday
  c.either_day_ = !words[2].starts_with('*') && !words[4].starts_with('*');
  c.is_fixed_ = !words[0].starts_with('*') && !words[1].starts_with('*');
  return c;
}

bool cron::fits_day(std::int64_t year, unsigned month, unsigned day) const noexcept {
  const bool by_date = (days_ >> day & 1) != 0;
  const bool by_weekday = (weekdays_ >> weekday_of(days_of({year, month, day})) & 1) != 0;
  return either_day_ ? by_date || by_weekday : by_date && by_weekday;
}

std::optional<std::int64_t> cron::next(std::int64_t local) const noexcept {
  const std::int64_t minute = floor_div(local, 60) + 1;  // the first that may be meant
  const std::int64_t days = floor_div(minute * 60, day_seconds);
  date d = date_of(days);
  const auto of_day = static_cast<unsigned>(minute - days * 1'440);
  unsigned hour = of_day / 60;
  unsigned in_hour = of_day % 60;
  const std::int64_t last_year = d.year + years_ahead;
  for (; d.year <= last_year; d = {d.year + 1, 1, 1}, hour = in_hour = 0) {
    for (unsigned m = bit_from(months_, d.month); m <= 12; m = bit_from(months_, m + 1)) {
      if (m != d.month) d.day = 1, hour = in_hour = 0;
      d.month = m;
      for (; d.day <= days_in(d.year, m); ++d.day, hour = in_hour = 0) {
        if (!fits_day(d.year, m, d.day)) continue;
        unsigned h = bit_from(hours_, hour);
        unsigned n = h == hour ? bit_from(minutes_, in_hour) : 64;
        if (n > 59) {
          if (h == hour) h = bit_from(hours_, hour + 1);
          n = bit_from(minutes_, 0);
        }
        if (h <= 23) return (days_of(d) * 1'440 + h * 60 + n) * 60;
      }
    }
  }
  return std::nullopt;
}

}  // namespace verge::server::calendar
