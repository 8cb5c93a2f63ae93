// SPDX-License-Identifier: Apache-2.0

// Recordings of a runtime: the schema of Chrome's JSON, nesting, and that recording changes
// nothing.

#include <verge/trace.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched/live_scheduler.h>
#include <support/blockers.h>
#include <support/engines.h>
#include <support/json_reader.h>
#include <support/patience.h>
#include <verge/chan.h>
#include <verge/dump.h>
#include <verge/time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using verge::test::json;

/// What it has written, read back.
json written(const verge::trace& t) {
  std::ostringstream out;
  t.write(out);
  return verge::test::read_json(out.str());
}

std::vector<json> events(const json& all, const std::string& phase) {
  std::vector<json> found;
  for (const json& e : all["traceEvents"].array) {
    if (e["ph"].text == phase) found.push_back(e);
  }
  return found;
}

/// Every event has what Chrome needs of its kind.
void expect_schema(const json& all) {
  ASSERT_TRUE(all.has("traceEvents"));
  for (const json& e : all["traceEvents"].array) {
    ASSERT_TRUE(e.has("ph") && e.has("pid") && e.has("tid") && e.has("name"));
    const std::string& phase = e["ph"].text;
    ASSERT_THAT(phase, testing::AnyOf("M", "X", "i", "b", "n", "e"));
    if (phase == "M") continue;
    ASSERT_TRUE(e.has("ts"));
    EXPECT_GE(e["ts"].number, 0);
    if (phase == "X") {
      ASSERT_TRUE(e.has("dur"));
      EXPECT_GE(e["dur"].number, 0);
      EXPECT_THAT(e["cat"].text, testing::AnyOf("callback", "task", "idle"));
    }
    if (phase == "b" || phase == "e" || phase == "n") {
      EXPECT_TRUE(e.has("id") && e.has("cat"));
    }
  }
}

/// The slices of a track follow one another.
void expect_nesting(const json& all) {
  std::map<double, std::vector<std::pair<double, double>>> tracks;
  for (const json& e : events(all, "X")) {
    tracks[e["tid"].number].emplace_back(e["ts"].number, e["ts"].number + e["dur"].number);
  }
  for (auto& [track, slices] : tracks) {
    std::sort(slices.begin(), slices.end());
    for (std::size_t i = 1; i < slices.size(); ++i) {
      // To the nanosecond that is lost in rounding.
      EXPECT_LE(slices[i - 1].second, slices[i].first + .002) << "on track " << track;
    }
  }
}

/// Every timer that begins ends, in this order, and none ends that has not begun.
void expect_pairs(const json& all) {
  std::map<std::string, int> open;
  for (const json& e : all["traceEvents"].array) {
    if (!e.has("id")) continue;
    int& n = open[e["id"].text];
    if (e["ph"].text == "b") ++n;
    if (e["ph"].text == "e") --n;
    EXPECT_THAT(n, testing::AnyOf(0, 1));
  }
  for (const auto& [id, n] : open) EXPECT_EQ(n, 0) << id;
}

/// Whether no processor runs anything: a turn that has not ended yet is not in a recording.
bool is_idle(verge::runtime& rt) {
  std::ostringstream out;
  verge::write_dump(out, rt);
  return out.str().find(": runs") == std::string::npos;
}

TEST(trace, has_callbacks_tasks_and_timers) {
  verge::runtime rt({.processors = 2});
  verge::trace recording(rt);
  std::atomic<int> fired = 0;
  auto t = verge::after_func(rt, 1ms, [&] { ++fired; }, {.label = "a \"quoted\" one"});
  auto stopped = verge::after_func(rt, 1h, [] {});
  auto moved = verge::after_func(rt, 1h, [] {});
  auto pending = verge::after_func(rt, 1h, [] {});
  EXPECT_TRUE(stopped.stop());
  EXPECT_TRUE(moved.reset(2h));
  rt.run([]() -> verge::task<> {
    verge::label_task("a sleeper");
    co_await verge::sleep(2ms);
  });
  ASSERT_TRUE(verge::test::eventually([&] { return fired == 1; }));
  t = verge::timer();
  ASSERT_TRUE(verge::test::eventually([&] { return is_idle(rt); }));
  recording.stop();
  const json all = written(recording);
  expect_schema(all);
  expect_nesting(all);
  expect_pairs(all);
  EXPECT_EQ(recording.lost(), 0);

  const auto has = [&](const std::string& phase, const std::string& name, const std::string& how) {
    const auto found = events(all, phase);
    return std::any_of(found.begin(), found.end(), [&](const json& e) {
      return e["name"].text.find(name) != std::string::npos &&
             (how.empty() || e["args"]["how"].text == how);
    });
  };
  EXPECT_TRUE(has("X", "a \"quoted\" one", ""));
  EXPECT_TRUE(has("X", "a sleeper", ""));
  EXPECT_TRUE(has("b", "a \"quoted\" one", "started"));
  EXPECT_TRUE(has("e", "a \"quoted\" one", "fired"));
  EXPECT_TRUE(has("i", "fire: a \"quoted\" one", ""));
  EXPECT_TRUE(has("e", "has_callbacks_tasks_and_timers", "stopped"));
  EXPECT_TRUE(has("n", "has_callbacks_tasks_and_timers", "reset"));
  EXPECT_TRUE(has("e", "has_callbacks_tasks_and_timers", "pending at the end"));
}

class traced_engine : public testing::TestWithParam<verge::test::engine_traits> {};
INSTANTIATE_TEST_SUITE_P(engines, traced_engine, testing::ValuesIn(verge::test::engines),
                         [](const auto& i) { return i.param.name; });

TEST_P(traced_engine, says_when_timers_start_and_fire) {
  verge::runtime rt({.processors = 2, .engine = GetParam().engine});
  verge::trace recording(rt);
  std::atomic<int> fired = 0;
  constexpr int n = 10;
  for (int i = 0; i < n; ++i) {
    verge::after_func(rt, 1ms * i, [&] { ++fired; }, {.label = "one"}).detach();
  }
  ASSERT_TRUE(verge::test::eventually([&] { return fired == n; }));
  recording.stop();
  const json all = written(recording);
  expect_schema(all);
  expect_pairs(all);
  int instants = 0;
  for (const json& e : events(all, "i")) {
    if (e["name"].text != "fire: one") continue;
    ++instants;
    EXPECT_GE(e["args"]["late_us"].number, 0);
  }
  EXPECT_EQ(instants, n);
  int ends = 0;
  for (const json& e : events(all, "e")) ends += e["args"]["how"].text == "fired" ? 1 : 0;
  EXPECT_EQ(ends, n);
}

TEST(trace, slices_do_not_overlap_where_tasks_block) {
  verge::runtime rt({.processors = 2});
  verge::trace recording(rt);
  std::vector<verge::join_handle<void>> tasks;
  for (int i = 0; i < 20; ++i) {
    tasks.push_back(rt.spawn([] {
      for (int n = 0; n < 10; ++n) {
        verge::blocking([] { std::this_thread::sleep_for(200us); });
        const auto end = verge::clock::now() + 100us;
        while (verge::clock::now() < end) {
        }
      }
    }));
  }
  for (auto& t : tasks) t.join();
  recording.stop();
  const json all = written(recording);
  expect_schema(all);
  expect_nesting(all);
  EXPECT_GT(events(all, "X").size(), 20);
}

/// It was idle before the recording began.
TEST(trace, has_the_idle_time_before_a_task_and_none_between_its_turns) {
  verge::runtime rt({.processors = 1});
  rt.run([] {});
  ASSERT_TRUE(verge::test::eventually([&] { return is_idle(rt); }));
  verge::trace recording(rt);
  rt.run([]() -> verge::task<> {
    for (int i = 0; i < 20; ++i) co_await verge::yield();
  });
  recording.stop();
  const json all = written(recording);
  expect_schema(all);
  expect_nesting(all);
  const auto slices = events(all, "X");
  ASSERT_GE(slices.size(), 20U);
  EXPECT_EQ(slices[0]["cat"].text, "idle");
  EXPECT_EQ(slices[0]["ts"].number, 0);
  EXPECT_GT(slices[0]["dur"].number, 0);
  for (std::size_t i = 1; i < 20; ++i) EXPECT_EQ(slices[i]["cat"].text, "task") << i;
}

/// Of processors that come later it has nothing.
TEST(trace, goes_on_while_the_number_of_processors_grows) {
  verge::runtime rt({.processors = 1});
  verge::trace recording(rt);
  rt.set_processors(3);
  rt.run([] {});
  recording.stop();
  std::ostringstream out;
  recording.write(out);
  EXPECT_NE(out.str(), "");
}

TEST(trace, says_what_it_has_lost) {
  verge::runtime rt({.processors = 1});
  verge::trace recording(rt, {.events = 1});  // 1,024
  verge::timer t = verge::after_func(rt, 1h, [] {});
  for (int i = 0; i < 3000; ++i) t.reset(1h);
  recording.stop();
  EXPECT_GE(recording.lost(), 1900);
  const json all = written(recording);
  EXPECT_EQ(all["otherData"]["lost"].number, static_cast<double>(recording.lost()));
  expect_schema(all);
}

/// A program that is stuck is traced to see what it does: also that it needs spare processors.
TEST(trace, has_what_runs_on_spare_processors) {
  verge::runtime rt({.processors = 1});
  verge::test::blockers stuck;
  // On a loaded machine a spare one may have come for the first already.
  constexpr int some = 4;
  for (int i = 0; i < some; ++i) rt.spawn(stuck.block()).detach();
  ASSERT_TRUE(verge::test::eventually([&] { return stuck.count() == some; }));
  verge::trace recording(rt);
  rt.run([]() -> verge::task<> {
    verge::label_task("elsewhere");
    // What runs when the recording ends is not in it: so not only one turn.
    for (int i = 0; i < 5; ++i) co_await verge::sleep(1ms);
  });
  std::atomic<bool> fired = false;
  auto t = verge::after_func(rt, 1ms, [&] { fired = true; }, {.label = "late"});
  ASSERT_TRUE(verge::test::eventually([&] { return fired.load(); }));
  recording.stop();
  stuck.release();
  const json all = written(recording);
  expect_schema(all);
  expect_nesting(all);
  expect_pairs(all);
  std::set<double> spares;
  for (const json& e : events(all, "M")) {
    if (e["args"]["name"].text.starts_with("spare processor")) spares.insert(e["tid"].number);
  }
  const auto slices = events(all, "X");
  EXPECT_TRUE(std::any_of(slices.begin(), slices.end(), [&](const json& e) {
    return e["name"].text == "elsewhere" && spares.contains(e["tid"].number);
  }));
  const auto instants = events(all, "i");
  EXPECT_TRUE(std::any_of(instants.begin(), instants.end(),
                          [](const json& e) { return e["name"].text == "fire: late"; }));
  // That it has fired is known of the timer as well, and not only of the processor.
  for (const json& e : events(all, "e")) {
    if (e["name"].text == "late") {
      EXPECT_EQ(e["args"]["how"].text, "fired");
    }
  }
}

TEST(trace, one_at_a_time_and_written_after_its_end) {
  verge::runtime rt({.processors = 1});
  verge::trace first(rt);
  EXPECT_THROW(verge::trace second(rt), std::logic_error);
  std::ostringstream out;
  EXPECT_THROW(first.write(out), std::logic_error);
  first.stop();
  first.stop();
  const verge::trace second(rt);
}

/// Not all of what a task does has to be one turn.
TEST(trace, has_the_label_that_a_task_gets_in_its_last_turn) {
  verge::runtime rt({.processors = 1});
  verge::trace recording(rt);
  rt.run([] { verge::label_task("named at last"); });
  ASSERT_TRUE(verge::test::eventually([&] { return is_idle(rt); }));
  recording.stop();
  const auto turns = events(written(recording), "X");
  EXPECT_TRUE(std::any_of(turns.begin(), turns.end(), [](const json& e) {
    return e["name"].text.find("named at last") != std::string::npos;
  }));
}

/// A worker that is slow may write there until the runtime ends.
TEST(trace, uses_the_rings_of_the_one_before) {
  verge::runtime rt({.processors = 1});
  const auto& s = static_cast<verge::detail::live_scheduler&>(verge::detail::scheduler_of(rt));
  verge::trace(rt).stop();
  const auto* const ring = s.all_processors()[0].ring.get();
  ASSERT_NE(ring, nullptr);
  verge::trace(rt).stop();
  EXPECT_EQ(s.all_processors()[0].ring.get(), ring);
}

/// Timers work the same on the path that a trace takes, and again on the fast one.
TEST(trace, may_begin_and_end_while_timers_are_used) {
  verge::runtime rt({.processors = 2});
  std::atomic<bool> stop = false;
  std::atomic<int> expected = 0;
  std::atomic<int> fired = 0;
  const auto use = [&] {
    while (!stop) {
      std::vector<verge::timer> timers;
      for (int i = 0; i < 64; ++i) {
        timers.push_back(verge::after_func(rt, 1h, [&] { ++fired; }));
        if (i % 4 == 0) timers.back().reset(2h);
        if (i % 4 == 1) {
          EXPECT_TRUE(timers.back().stop());
        }
        if (i % 4 == 2) {
          timers.back().reset(100us);
          timers.back().detach();
          timers.pop_back();
          ++expected;
        }
      }
      std::this_thread::sleep_for(100us);
    }
  };
  std::thread a(use);
  std::thread b(use);
  for (int i = 0; i < 20; ++i) {
    verge::trace recording(rt, {.events = 4096});
    std::this_thread::sleep_for(5ms);
    recording.stop();
    const json all = written(recording);
    expect_schema(all);
    expect_nesting(all);
  }
  stop = true;
  a.join();
  b.join();
  EXPECT_TRUE(verge::test::eventually([&] { return fired == expected; }));
  EXPECT_EQ(rt.stats().total.timers_live, 0);
}

}  // namespace
