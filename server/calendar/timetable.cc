// SPDX-License-Identifier: Apache-2.0

#include "timetable.h"

#include <algorithm>
#include <limits>

#include "../text/time_text.h"
#include "civil.h"

namespace verge::server::calendar {

namespace {

/// A zone changes its clocks twice a year: this is more than fifty years of changes.
constexpr int most_spans = 400;
constexpr std::int64_t latest_second = std::numeric_limits<wall_time>::max() / second;

}  // namespace

std::optional<timetable> timetable::parse(const std::string& when, const std::string& zone_name,
                                          std::string& why) {
  timetable t;
  t.zone_ = zone::load(zone_name.empty() ? "UTC" : zone_name, why);
  if (t.zone_ == nullptr) return std::nullopt;
  constexpr std::string_view every = "every ";
  if (when.starts_with(every)) {
    // A bare number is in nanoseconds, and too short.
    const auto length = parse_duration(std::string_view(when).substr(every.size()), 1);
    if (!length || *length < second) {
      why = "every has to be followed by a length of at least a second, like every 10m";
      return std::nullopt;
    }
    t.interval_ = *length;
    return t;
  }
  t.cron_ = cron::parse(when, why);
  if (!t.cron_) return std::nullopt;
  if (!t.cron_->next(0)) {
    why = "'" + when + "' never comes: there is no such day";
    return std::nullopt;
  }
  return t;
}

std::optional<wall_time> timetable::next(wall_time after) const noexcept {
  if (!cron_) {
    const std::int64_t n = floor_div(after, interval_) + 1;
    if (n > std::numeric_limits<wall_time>::max() / interval_) return std::nullopt;
    return n * interval_;
  }
  const auto found = next_of_cron(floor_div(after, second));
  if (!found || *found > latest_second) return std::nullopt;
  return *found * second;
}

/// Span by span. In one span local time runs evenly. At its beginning local times may be missing,
/// and are taken as if clocks had not been changed, or come a second time, and have been seen.
std::optional<std::int64_t> timetable::next_of_cron(std::int64_t utc) const noexcept {
  const bool fixed = cron_->is_fixed();
  span s = zone_->at(utc);
  for (int i = 0; i < most_spans; ++i) {
    const bool is_first = s.begin == std::numeric_limits<std::int64_t>::min();
    const std::int32_t offset_before = is_first ? s.offset : zone_->at(s.begin - 1).offset;
    const std::int64_t from = is_first ? utc : std::max(utc, s.begin - 1);
    std::optional<std::int64_t> found;
    std::int64_t local = from + s.offset;
    if (fixed && offset_before > s.offset) {
      local = std::max(local, s.begin + offset_before - 1);
    }
    if (const auto l = cron_->next(local); l && *l - s.offset < s.end) found = *l - s.offset;
    if (fixed && offset_before < s.offset) {
      const auto l = cron_->next(from + offset_before);
      if (l && *l < s.begin + s.offset)
        found = std::min(found.value_or(latest_second), *l - offset_before);
    }
    if (found) return found;
    if (s.end == std::numeric_limits<std::int64_t>::max()) return std::nullopt;
    s = zone_->at(s.end);
  }
  return std::nullopt;
}

std::vector<wall_time> timetable::latest(wall_time from, wall_time to, std::size_t most) const {
  std::vector<wall_time> all;
  if (most == 0 || from > to) return all;
  // Longer and longer pieces from the end, until there is enough: what lies far back is not walked
  // through.
  nanoseconds back = 600 * second;
  for (;;) {
    const bool whole = to - from <= back;
    const wall_time begin = whole ? from : to - back;
    all.clear();
    for (auto t = next(begin - 1); t && *t <= to; t = next(*t)) all.push_back(*t);
    if (all.size() >= most || whole) break;
    back = back > std::numeric_limits<nanoseconds>::max() / 8 ? to - from : 8 * back;
  }
  if (all.size() > most) all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(most));
  return all;
}

}  // namespace verge::server::calendar
