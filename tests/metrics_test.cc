// SPDX-License-Identifier: Apache-2.0

// A runtime's figures in Prometheus' text format.

#include <verge/metrics.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <support/patience.h>
#include <verge/chan.h>
#include <verge/task.h>
#include <verge/time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;

struct exposition {
  std::map<std::string, std::string> types;
  std::map<std::string, double> samples;  ///< by name with labels
  std::vector<double> buckets;
};

/// Reads the text, and sees that every metric is announced once, before its samples.
exposition parse(const std::string& text) {
  exposition all;
  std::set<std::string> helped;
  std::string current;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash;
    std::string kind;
    std::string name;
    if (line.starts_with("# ")) {
      words >> hash >> kind >> name;
      if (kind == "HELP") {
        EXPECT_TRUE(helped.insert(name).second) << line;
      } else {
        EXPECT_EQ(kind, "TYPE");
        EXPECT_TRUE(helped.contains(name)) << line;
        words >> all.types[name];
        current = name;
      }
      continue;
    }
    const auto space = line.rfind(' ');
    name = line.substr(0, space);
    EXPECT_TRUE(name.starts_with(current)) << line;
    std::size_t used = 0;
    const double value = std::stod(line.substr(space + 1), &used);
    EXPECT_EQ(used, line.size() - space - 1) << line;
    EXPECT_TRUE(all.samples.emplace(name, value).second) << line;
    if (name.starts_with("verge_timer_lateness_seconds_bucket")) all.buckets.push_back(value);
  }
  return all;
}

TEST(prometheus, quotes_labels) {
  verge::runtime_stats figures;
  figures.labels = {{.label = "a \"b\" \\ c\nd", .place = "x.cc:1 f", .pending = 2, .fired = 3}};
  std::ostringstream text;
  verge::write_prometheus(text, figures);
  const std::string labels = R"({label="a \"b\" \\ c\nd",place="x.cc:1 f"})";
  EXPECT_THAT(text.str(), testing::HasSubstr("\nverge_label_timers_pending" + labels + " 2\n"));
  EXPECT_THAT(text.str(), testing::HasSubstr("\nverge_label_timers_fired_total" + labels + " 3\n"));
}

TEST(prometheus, has_every_figure_once_and_in_its_units) {
  verge::runtime rt({.processors = 2});
  std::atomic<int> fired = 0;
  std::vector<verge::timer> timers;
  for (int i = 0; i < 10; ++i) timers.push_back(verge::after_func(rt, 1ms, [&] { ++fired; }));
  ASSERT_TRUE(verge::test::eventually([&] { return fired == 10; }));
  const auto pending = verge::after_func(rt, 1h, [] {});
  std::ostringstream text;
  verge::write_prometheus(text, rt.stats());
  exposition all = parse(text.str());
  // Prometheus takes x_total and x for one: neither may be there beside the other.
  std::set<std::string> families;
  std::set<std::string> names;
  for (const auto& [name, type] : all.types) {
    EXPECT_EQ(type == "counter", name.ends_with("_total")) << name;
    ASSERT_TRUE(name.starts_with("verge_")) << name;
    names.insert(name.substr(6));
    EXPECT_TRUE(families.insert(name.substr(0, name.rfind("_total"))).second) << name;
  }
  EXPECT_EQ(names, (std::set<std::string>{"info",
                                          "processors",
                                          "processors_info",
                                          "timers_pending",
                                          "timers_left_in_queue",
                                          "timers_fired_total",
                                          "timers_stolen_total",
                                          "tasks_run_total",
                                          "tasks_queued",
                                          "tasks_stolen_total",
                                          "wakeups_total",
                                          "processor_busy_seconds_total",
                                          "timer_lateness_seconds",
                                          "turn_seconds",
                                          "ready_wait_seconds",
                                          "timers_started_total",
                                          "timers_stopped_total",
                                          "timers_reset_total",
                                          "tasks_started_total",
                                          "tasks_live",
                                          "tasks_waiting",
                                          "polls_total",
                                          "poll_breaks_total",
                                          "poll_rescues_total",
                                          "monitor_wakeups_total",
                                          "spare_processors_total",
                                          "stalls_total",
                                          "threads_started_total",
                                          "label_timers_pending",
                                          "label_timers_fired_total",
                                          "timer_memory_bytes",
                                          "longest_stall_seconds",
                                          "precise_waits_seconds_total"}));
  const auto of_both = [&](const std::string& name) {
    return all.samples.at(name + "{processor=\"0\"}") + all.samples.at(name + "{processor=\"1\"}");
  };
  EXPECT_EQ(of_both("verge_timers_fired_total"), 10);
  EXPECT_EQ(of_both("verge_timers_pending"), 1);
  EXPECT_EQ(all.samples.at("verge_processors"), 2);
  EXPECT_GT(all.samples.at("verge_timer_memory_bytes"), 0);
}

// Every engine: what was started is pending, or was stopped, or has fired.
class totals : public testing::TestWithParam<verge::engine> {};

TEST_P(totals, started_stopped_and_reset_timers_are_counted) {
  // The ticks are so long that two hours are within the span of the simple wheel.
  verge::runtime rt({.processors = 2, .engine = GetParam(), .wheel = {.tick = 200ms}});
  std::atomic<int> fired = 0;
  std::vector<verge::timer> timers;
  for (int i = 0; i < 3000; ++i) timers.push_back(verge::after_func(rt, 1h, [&] { ++fired; }));
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(timers[i].stop());
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(timers[i].stop());
  for (int i = 1000; i < 1500; ++i) EXPECT_TRUE(timers[i].reset(2h));     // later
  for (int i = 1500; i < 2000; ++i) EXPECT_TRUE(timers[i].reset(30min));  // earlier
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(timers[i].reset(1h));        // started again
  verge::runtime_stats now = rt.stats();
  EXPECT_EQ(now.timers_started, 3100);
  EXPECT_EQ(now.timers_stopped, 1000);
  EXPECT_EQ(now.timers_reset, 1000);
  EXPECT_EQ(now.total.timers_live, 2100);
  timers.resize(500);  // 400 of them are stopped, 100 pending
  EXPECT_EQ(rt.stats().timers_stopped, 3000);
  for (int i = 0; i < 500; ++i) timers[i].reset(1ms);
  ASSERT_TRUE(verge::test::eventually([&] { return fired == 500; }));
  now = rt.stats();
  EXPECT_EQ(now.timers_started, 3500);
  EXPECT_EQ(now.timers_reset, 1100);
  EXPECT_EQ(now.total.timers_fired, 500);
}

INSTANTIATE_TEST_SUITE_P(every, totals, testing::ValuesIn(verge::engines()),
                         [](const auto& of) { return std::string(name_of(of.param)); });

TEST(totals, of_several_threads_are_complete) {
  verge::runtime rt({.processors = 2});
  constexpr int each = 20'000;
  const auto use = [&] {
    std::vector<verge::timer> timers(16);
    for (int i = 0; i < each; ++i) {
      verge::timer& t = timers[i % 16];
      t = verge::after_func(rt, 1h, [] {});
      t.reset(2h);
      if (i % 2 == 0) t.stop();
    }
  };
  // A counter never goes back, however it is read.
  std::atomic<bool> done = false;
  std::thread reader([&] {
    verge::runtime_stats before;
    while (!done) {
      verge::runtime_stats now = rt.stats();
      EXPECT_GE(now.timers_started, before.timers_started);
      EXPECT_GE(now.timers_stopped, before.timers_stopped);
      EXPECT_LE(now.timers_stopped, 3 * each);
      before = now;
    }
  });
  std::thread a(use);
  std::thread b(use);
  rt.run(use);
  a.join();
  b.join();
  done = true;
  reader.join();
  const verge::runtime_stats now = rt.stats();
  EXPECT_EQ(now.timers_started, 3 * each);
  EXPECT_EQ(now.timers_stopped, 3 * each);
  EXPECT_EQ(now.timers_reset, 3 * each);
  EXPECT_EQ(now.total.timers_live, 0);
}

TEST(figures, of_tasks_and_their_turns) {
  verge::runtime rt({.processors = 2});
  verge::chan<int> never;
  std::vector<verge::join_handle<void>> tasks;
  for (int i = 0; i < 50; ++i) {
    tasks.push_back(rt.spawn([&]() -> verge::task<> { co_await verge::recv(never); }));
  }
  ASSERT_TRUE(verge::test::eventually([&] { return rt.stats().tasks_waiting >= 49; }));
  verge::runtime_stats now = rt.stats();
  EXPECT_EQ(now.tasks_started, 50);
  EXPECT_EQ(now.tasks_live, 50);
  never.close();
  for (auto& t : tasks) t.join();
  ASSERT_TRUE(verge::test::eventually([&] { return rt.stats().tasks_live == 0; }));

  // Turns: each callback of 2 ms is a turn, and something waits behind it.
  std::atomic<int> ended = 0;
  std::vector<verge::timer> timers;
  for (int i = 0; i < 200; ++i) {
    timers.push_back(verge::after_func(rt, 1ms, [&] {
      const auto end = verge::clock::now() + 200us;
      while (verge::clock::now() < end) {
      }
      ++ended;
    }));
  }
  ASSERT_TRUE(verge::test::eventually([&] { return ended == 200; }));
  now = rt.stats();
  EXPECT_GT(now.total.turns.count(), 0);
  EXPECT_GE(now.total.turns.percentile(1), 200'000);
  EXPECT_GE(now.total.busy, 40ms);
  EXPECT_GE(now.total.tasks_run, 250);
}

TEST(figures, of_what_waits_in_a_queue) {
  verge::runtime rt({.processors = 1});
  // Of each ten, the last one waits for nine others. One place in sixteen is measured.
  for (int round = 0; round < 32; ++round) {
    rt.run([&] {
      for (int i = 0; i < 10; ++i) rt.spawn([] { std::this_thread::sleep_for(50us); }).detach();
    });
    ASSERT_TRUE(verge::test::eventually([&] { return rt.stats().tasks_live == 0; }));
  }
  const auto waits = rt.stats().total.ready_waits;
  EXPECT_GT(waits.count(), 0);
  EXPECT_GE(waits.percentile(1), 50'000);
}

TEST(prometheus, has_lateness_as_a_histogram) {
  verge::runtime_stats figures;
  verge::lateness_histogram::recorder late;
  for (const std::int64_t ns : {0, 900, 1'500, 40'000, 2'000'000}) late.record(ns);
  late.record(std::int64_t{1} << 40);
  figures.total.lateness = late.read();
  std::ostringstream text;
  verge::write_prometheus(text, figures);
  const exposition all = parse(text.str());
  EXPECT_EQ(all.types.at("verge_timer_lateness_seconds"), "histogram");
  EXPECT_TRUE(std::is_sorted(all.buckets.begin(), all.buckets.end()));
  const auto bucket = [&](const std::string& le) {
    return all.samples.at("verge_timer_lateness_seconds_bucket{le=\"" + le + "\"}");
  };
  EXPECT_EQ(bucket("1.024e-06"), 2);
  EXPECT_EQ(bucket("2.048e-06"), 3);
  EXPECT_EQ(bucket("6.5536e-05"), 4);
  EXPECT_EQ(bucket("17.1798692"), 5);
  EXPECT_EQ(bucket("+Inf"), 6);
  EXPECT_EQ(all.samples.at("verge_timer_lateness_seconds_count"), 6);
}

}  // namespace
