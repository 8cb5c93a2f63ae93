// A runtime's figures in Prometheus' text format.

#include <verge/metrics.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <support/patience.h>
#include <verge/time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <sstream>
#include <string>
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
  for (const auto& [name, type] : all.types) {
    EXPECT_EQ(type == "counter", name.ends_with("_total")) << name;
    EXPECT_TRUE(name.starts_with("verge_")) << name;
  }
  const auto of_both = [&](const std::string& name) {
    return all.samples.at(name + "{processor=\"0\"}") + all.samples.at(name + "{processor=\"1\"}");
  };
  EXPECT_EQ(of_both("verge_timers_fired_total"), 10);
  EXPECT_EQ(of_both("verge_timers_pending"), 1);
  EXPECT_EQ(all.samples.at("verge_processors"), 2);
  EXPECT_GT(all.samples.at("verge_timer_memory_bytes"), 0);
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
