// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../calendar/timetable.h"
#include "command.h"

/// Recurring tasks: at each time of a timetable a task is put.
///
/// Each firing has a key, the schedule's name and the nominal time, and is written in one batch
/// with the time of the next one: whatever happens, each time is fired once or, as told below, not.
///
/// A clock that is set back makes times come again. Those that were fired are not fired again;
/// those that were not, because a clock that was ahead had passed over them, are. So a schedule
/// remembers which of its times were fired, as stretches of its timetable. One that never misses a
/// time has one stretch, which grows.
namespace verge::server {

/// What becomes of times that passed while the server did not run, or was drained.
enum class if_missed : std::uint8_t {
  skip,  ///< nothing
  once,  ///< the last of them is fired
  all,   ///< the last thousand are
};
const char* name_of(if_missed m) noexcept;
std::optional<if_missed> if_missed_named(std::string_view name) noexcept;

/// The first and the last time of each stretch, of which all times were fired.
using fired_stretches = std::map<wall_time, wall_time>;
/// Of more than these the earliest is forgotten.
inline constexpr std::size_t most_stretches = 16;
void note_fired(fired_stretches& all, const calendar::timetable& t, wall_time nominal);
bool was_fired(const fired_stretches& all, wall_time nominal) noexcept;
/// The first time after this one that was not fired.
std::optional<wall_time> next_unfired(const fired_stretches& all, const calendar::timetable& t,
                                      wall_time after);

struct schedule {
  std::string name;
  std::string tube;
  std::string when;  ///< a cron expression, or "every 10m"
  std::string zone;  ///< empty: UTC
  if_missed missed{if_missed::once};
  new_task what;      ///< without key and time
  wall_time next{0};  ///< the time to fire, unless the clock is set back before it
  wall_time last{0};  ///< the time that was fired last; 0: none
  std::uint64_t fired{0};
  fired_stretches stretches;
};

/// A schedule as it is shown.
struct schedule_view {
  schedule what;
  std::string fault;                ///< why it never fires, if it does not
  std::vector<wall_time> upcoming;  ///< the times to come, some of them
};
struct schedule_list {
  std::vector<schedule_view> all;
};

/// A time that is no more than this late is not missed.
inline constexpr nanoseconds grace = 60'000'000'000;
inline constexpr std::size_t most_missed = 1'000;
inline constexpr std::size_t most_schedules = 10'000;

/// Names: 1 to 100 of A-Z a-z 0-9 - _ .
bool is_schedule_name(std::string_view name) noexcept;
/// The key of a firing: "nightly@2026-11-16T02:30:00Z".
std::string key_of_firing(const std::string& name, wall_time nominal);

/// Which times are to be fired now: of those from `s.next` on that have come and were not fired. In
/// order.
std::vector<wall_time> due_times(const calendar::timetable& t, const schedule& s, wall_time now);

/// As the text of a note.
std::string schedule_note(const schedule& s);
/// Throws store_error if it is none.
schedule parse_schedule_note(std::string_view text);

}  // namespace verge::server
