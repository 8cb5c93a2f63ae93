// SPDX-License-Identifier: Apache-2.0

#include <sched/labels.h>

#include <array>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include <engine/clockwork.h>
#include <node/named_behaviours.h>

namespace verge::detail {

namespace {

/// How many are told apart: the first ones there were, so that a label does not come and go.
constexpr std::size_t most_labels = 100;
constexpr std::size_t sampled_timers = 4096;

using label_and_place = std::pair<std::string, std::string>;

label_and_place name_of_number(std::size_t number) {
  if (number == 0) return {"", "timers without a name"};
  const timer_behaviour& does = named_behaviours::at(number);
  const char* const place = does.place != nullptr ? does.place : does.written;
  return {does.label != nullptr ? does.label : "", place != nullptr ? place : "?"};
}

}  // namespace

std::vector<label_stats> labels_of(live_scheduler& s, std::uint64_t pending) {
  std::array<std::uint32_t, named_behaviours::most> seen{};
  std::uint64_t all_seen = 0;
  static constinit std::atomic<std::uint32_t> looks{0};
  s.timers().sample_pending(sampled_timers, looks.fetch_add(7919, std::memory_order_relaxed),
                            [&](const pending_timer& t) {
                              ++seen[named_behaviours::number_of(t.does)];
                              ++all_seen;
                            });
  const double scale =
      all_seen == 0 ? 0 : static_cast<double>(pending) / static_cast<double>(all_seen);

  // Behaviours of several types may have the same name.
  std::vector<label_stats> found;
  std::map<label_and_place, std::size_t> places;
  const std::size_t numbers = named_behaviours::size();
  for (std::size_t number = 0; number < numbers; ++number) {
    std::uint64_t fired = s.foreign().names().read(number);
    s.all_processors().for_each([&](const processor& p) { fired += p.fired_by_name.read(number); });
    if (fired == 0 && seen[number] == 0) continue;
    label_and_place its = name_of_number(number);
    auto place = places.find(its);
    if (place == places.end() && places.size() >= most_labels) {
      its = {"", "others"};
      place = places.find(its);
    }
    if (place == places.end()) {
      place = places.emplace(its, found.size()).first;
      found.push_back({.label = its.first, .place = its.second});
    }
    label_stats& l = found[place->second];
    l.fired += fired;
    l.pending +=
        static_cast<std::uint64_t>(std::llround(static_cast<double>(seen[number]) * scale));
  }
  return found;
}

}  // namespace verge::detail
