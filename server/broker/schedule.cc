// SPDX-License-Identifier: Apache-2.0

#include "schedule.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "../store/store.h"
#include "../text/coding.h"
#include "../text/time_text.h"

namespace verge::server {

const char* name_of(if_missed m) noexcept {
  switch (m) {
    case if_missed::skip:
      return "skip";
    case if_missed::once:
      return "once";
    case if_missed::all:
      break;
  }
  return "all";
}

std::optional<if_missed> if_missed_named(std::string_view name) noexcept {
  for (const if_missed m : {if_missed::skip, if_missed::once, if_missed::all}) {
    if (name == name_of(m)) return m;
  }
  return std::nullopt;
}

bool is_schedule_name(std::string_view name) noexcept {
  constexpr std::size_t longest_schedule_name = 100;
  return !name.empty() && name.size() <= longest_schedule_name &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

std::string key_of_firing(const std::string& name, wall_time nominal) {
  return std::string(name).append("@").append(format_rfc3339(nominal));
}

std::vector<wall_time> due_times(const calendar::timetable& t, const schedule& s, wall_time now) {
  std::vector<wall_time> times;
  if (s.next > now) return times;
  const wall_time on_time = std::max(s.next, now - grace);
  if (s.missed != if_missed::skip && s.next < on_time) {
    times = t.latest(s.next, on_time - 1, s.missed == if_missed::once ? 1 : most_missed);
  }
  for (auto n = t.next(on_time - 1); n && *n <= now; n = t.next(*n)) times.push_back(*n);
  std::erase_if(times, [&](wall_time n) { return was_fired(s.stretches, n); });
  return times;
}

bool was_fired(const fired_stretches& all, wall_time nominal) noexcept {
  const auto behind = all.upper_bound(nominal);
  return behind != all.begin() && nominal <= std::prev(behind)->second;
}

void note_fired(fired_stretches& all, const calendar::timetable& t, wall_time nominal) {
  const auto behind = all.upper_bound(nominal);
  const bool reaches_next = behind != all.end() && t.next(nominal) == behind->first;
  const wall_time last = reaches_next ? behind->second : nominal;
  const bool follows =
      behind != all.begin() && t.next(std::prev(behind)->second).value_or(nominal) == nominal;
  if (follows) {
    std::prev(behind)->second = last;
  } else {
    all[nominal] = last;
  }
  if (reaches_next) all.erase(behind);
  if (all.size() > most_stretches) all.erase(all.begin());
}

std::optional<wall_time> next_unfired(const fired_stretches& all, const calendar::timetable& t,
                                      wall_time after) {
  auto next = t.next(after);
  while (next && was_fired(all, *next)) next = t.next(std::prev(all.upper_bound(*next))->second);
  return next;
}

std::string schedule_note(const schedule& s) {
  nlohmann::json j;
  j["name"] = s.name;
  j["tube"] = s.tube;
  j["when"] = s.when;
  j["zone"] = s.zone;
  j["missed"] = name_of(s.missed);
  j["next"] = s.next;
  j["last"] = s.last;
  j["fired"] = s.fired;
  j["stretches"] =
      std::vector<std::pair<wall_time, wall_time>>(s.stretches.begin(), s.stretches.end());
  j["body"] = base64(s.what.body);
  j["priority"] = s.what.priority;
  j["ttr"] = s.what.ttr;
  j["max_attempts"] = s.what.max_attempts;
  j["backoff"] = s.what.backoff;
  j["dead_letter"] = s.what.dead_letter;
  j["url"] = s.what.url;
  return j.dump();
}

schedule parse_schedule_note(std::string_view text) {
  try {
    const nlohmann::json j = nlohmann::json::parse(text);
    schedule s;
    s.name = j.at("name");
    s.tube = j.at("tube");
    s.when = j.at("when");
    s.zone = j.at("zone");
    s.missed = if_missed_named(j.at("missed").get<std::string>()).value();
    s.next = j.at("next");
    s.last = j.at("last");
    s.fired = j.at("fired");
    if (j.contains("stretches")) {
      const auto all = j.at("stretches").get<std::vector<std::pair<wall_time, wall_time>>>();
      s.stretches = fired_stretches(all.begin(), all.end());
    } else if (s.last != 0) {
      s.stretches[s.last] = s.last;  // a format before
    }
    s.what.body = parse_base64(j.at("body").get<std::string>()).value();
    s.what.priority = j.at("priority");
    s.what.ttr = j.at("ttr");
    s.what.max_attempts = j.at("max_attempts");
    s.what.backoff = j.at("backoff");
    s.what.dead_letter = j.at("dead_letter");
    s.what.url = j.at("url");
    return s;
  } catch (const std::exception&) {
    throw store_error("a schedule cannot be read: restore a backup");
  }
}

}  // namespace verge::server
