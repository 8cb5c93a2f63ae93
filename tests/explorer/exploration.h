// SPDX-License-Identifier: Apache-2.0
// exploration: explores a list of scenarios and sums up.
//
//   const exploration e = explore_all<explorer_policy<>>("pairs", pairs(), any_number);
//
// stops at the first failure, which says how to replay it:
//
//   VERGE_SCHEDULE='waiting@90, del|run=0101' explorer_test --gtest_filter=...
//
// runs that one schedule, prints each step, and skips every other scenario.
//
// VERGE_EXPLORE=all leaves out no scenario, and runs schedules as well that differ from others only
// by the order of independent steps (./dev check schedules).
#pragma once

#include <gtest/gtest.h>
#include <support/scale.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <explorer/explorer.h>
#include <explorer/scenario.h>
#include <explorer/world.h>

namespace verge::test {

/// The thread sanitizer would have to be told of each fiber, and could find nothing: they never run
/// concurrently.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool can_explore = false;
#else
inline constexpr bool can_explore = true;
#endif

struct exploration {
  std::uint64_t scenarios = 0;
  std::uint64_t schedules = 0;
  std::uint64_t steps = 0;
  std::optional<failure> failed;
  /// The scenario that failed.
  std::string name;

  [[nodiscard]] std::string report() const {
    if (!failed) return "nothing failed";
    return failed->check + ": " + failed->detail + "\n  scenario  " + name + "\n  after     " +
           std::to_string(schedules) + " schedules in " + std::to_string(scenarios) +
           " scenarios\n  replay    VERGE_SCHEDULE='" + name + "=" + failed->schedule + "'\n" +
           failed->story;
  }
};

/// The schedule requested by the environment, if it is of this scenario. Sets `asked` if any is
/// requested.
inline std::optional<std::string> schedule_to_replay(const std::string& name, bool& asked) {
  const char* set = std::getenv("VERGE_SCHEDULE");
  asked = set != nullptr;
  if (!asked) return std::nullopt;
  const std::string_view text = set;
  const std::size_t cut = text.rfind('=');
  if (cut == std::string_view::npos) {
    std::fprintf(stderr, "VERGE_SCHEDULE must be SCENARIO=STEPS, as a failed test prints it\n");
    std::exit(2);
  }
  if (text.substr(0, cut) != name) return std::nullopt;
  return std::string(text.substr(cut + 1));
}

/// A bound that no schedule reaches: with one, there are no sleep sets.
inline constexpr int more_than_any_has = explorer::most_steps;

inline bool explores_all() {
  const char* set = std::getenv("VERGE_EXPLORE");
  return set != nullptr && std::string_view(set) == "all";
}

/// Every n-th of a list.
template <class Scenario>
std::vector<Scenario> thinned(const std::vector<Scenario>& list, std::size_t n) {
  std::vector<Scenario> few;
  for (std::size_t i = 0; i < list.size(); i += n) few.push_back(list[i]);
  return few;
}

/// Of how many scenarios one is explored: of `quick` when time is short, otherwise of `usual`;
/// ./dev check schedules explores each.
inline std::size_t one_of(std::size_t quick, std::size_t usual) {
  return explores_all() ? 1 : scale(usual, quick);
}

/// What the states of a scenario look like to the checks; its schedules are added to `schedules`.
template <class World, class Scenario>
std::set<std::uint64_t> states_of(const Scenario& s, int preemptions, std::uint64_t& schedules) {
  std::set<std::uint64_t> states;
  explorer e;
  World w(e, s);
  w.states = &states;
  const outcome all = e.explore(w, preemptions);
  EXPECT_FALSE(all.failed);
  schedules += all.schedules;
  return states;
}

/// Explores each in its own World. `name_of_one` returns its name.
template <class World, class Scenario, class Name>
exploration explore_each(const std::string& what, const std::vector<Scenario>& list,
                         int preemptions, Name name_of_one) {
  exploration sum;
  explorer e;
  if (preemptions == any_number && explores_all()) preemptions = more_than_any_has;
  for (const Scenario& s : list) {
    const std::string name = name_of_one(s);
    bool asked = false;
    const auto schedule = schedule_to_replay(name, asked);
    if (asked && !schedule) continue;
    World w(e, s);
    outcome one = schedule ? e.replay(w, *schedule) : e.explore(w, preemptions);
    if (schedule) std::printf("%s\n%s", name.c_str(), e.story().c_str());
    ++sum.scenarios;
    sum.schedules += one.schedules;
    sum.steps += one.steps;
    if (one.failed) {
      sum.failed = std::move(one.failed);
      sum.name = name;
      break;
    }
  }
  std::printf("[ explorer ] %s: %llu scenarios, %llu schedules, %llu steps%s\n", what.c_str(),
              static_cast<unsigned long long>(sum.scenarios),
              static_cast<unsigned long long>(sum.schedules),
              static_cast<unsigned long long>(sum.steps), sum.failed ? ", failed" : "");
  return sum;
}

template <class Policy>
exploration explore_all(const std::string& what, const std::vector<scenario>& list,
                        int preemptions = any_number) {
  return explore_each<world<Policy>>(what, list, preemptions,
                                     [](const scenario& s) { return s.name; });
}

}  // namespace verge::test
