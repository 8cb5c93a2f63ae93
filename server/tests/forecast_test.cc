// SPDX-License-Identifier: Apache-2.0

// What is due when: counts by the minute, whether tasks are in memory or in the store alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "broker/outlook.h"
#include "push/inbox.h"
#include "store/rocks_store.h"
#include "support/lab.h"
#include "support/scale.h"
#include "support/web_fixture.h"

namespace {

using namespace verge::server;
using namespace verge::server::test;
using namespace std::chrono_literals;
using json = nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;

// ---- The counts --------------------------------------------------------------------------------

TEST(an_outlook, knows_nothing_before_a_census_and_adds_what_changes_meanwhile) {
  outlook o;
  const wall_time now = 1'000'000 * minute + 30 * second;
  EXPECT_THAT(o.ahead(now, 3), IsEmpty());
  const auto all = o.wants(now);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->first, 1'000'000 * minute) << "from the beginning of this minute";
  EXPECT_EQ(all->step, minute);
  EXPECT_EQ(all->steps, 26U * 60);
  o.count(now, 1);  // in the store when the census begins
  o.begin(*all);
  EXPECT_FALSE(o.wants(now)) << "one at a time";
  o.count(now + minute, 2);
  o.count(now + 2 * minute, -1);
  std::vector<std::uint64_t> counted(all->steps);
  counted[0] = 1;
  counted[2] = 5;
  o.end(counted);
  EXPECT_THAT(o.ahead(now, 3), ElementsAre(1U, 2U, 4U));
  EXPECT_THAT(o.ahead(now + minute, 2), ElementsAre(2U, 4U));
  o.count(now + 2 * minute, 1);
  EXPECT_THAT(o.ahead(now + 2 * minute, 1), ElementsAre(5U));
  EXPECT_FALSE(o.wants(now + 60 * minute)) << "25 hours are known";
  EXPECT_TRUE(o.wants(now + 61 * minute));
}

TEST(an_outlook, is_extended_each_hour_by_what_it_does_not_know_yet) {
  outlook o;
  wall_time now = 1'000'000 * minute;
  auto r = o.wants(now);
  o.begin(*r);
  o.end(std::vector<std::uint64_t>(r->steps, 1));
  for (int hour = 0; hour < 200; ++hour) {
    const wall_time end = r->end();
    now += 61 * minute;
    r = o.wants(now);
    ASSERT_TRUE(r);
    EXPECT_EQ(r->first, end);
    o.begin(*r);
    o.count(end, 1);
    o.end(std::vector<std::uint64_t>(r->steps, 1));
    const auto day = o.ahead(now, 26 * 60);
    EXPECT_EQ(day.size(), 26U * 60);
    EXPECT_EQ(day[static_cast<std::size_t>((end - now) / minute)], 2U);
  }
  // A census that fails leaves what was known; a clock that is set far away begins again.
  now += 61 * minute;
  o.begin(*o.wants(now));
  o.end(std::nullopt);
  EXPECT_FALSE(o.ahead(now, 1).empty());
  EXPECT_EQ(o.wants(now + 10'000 * minute)->first, now + 10'000 * minute);
  EXPECT_EQ(o.wants(now - 10'000 * minute)->first, now - 10'000 * minute);
}

// ---- The broker --------------------------------------------------------------------------------

class asking_client final : public client {
 public:
  void deliver(reply r) override { last = std::move(r); }
  void flush() noexcept override {}
  void left() noexcept override {}
  reply last;
};

template <class View>
View ask(lab& l, command c) {
  auto who = std::make_shared<asking_client>();
  l.run_with(who, std::move(c));
  return std::get<View>(*who->last.shown);
}

/// All delayed tasks, by the minute that they are due in, from this one on.
std::map<std::int64_t, std::uint64_t> listed(lab& l, const std::vector<std::string>& tubes) {
  std::map<std::int64_t, std::uint64_t> found;
  for (const std::string& tube : tubes) {
    command c(verb::list_tasks, 1'000'000);
    c.tube = tube;
    c.state = task_state::delayed;
    auto who = std::make_shared<asking_client>();
    l.run_with(who, std::move(c));
    if (who->last.what != answer::shown) continue;
    for (const task_view& t : std::get<list_view>(*who->last.shown).tasks) {
      ++found[t.fields.due / minute - l.wall / minute];
    }
  }
  return found;
}

/// A random history, over restarts: at each moment the forecast is what a list says.
void compare(std::unique_ptr<store> kept, std::uint64_t seed, int steps) {
  broker_options o;
  o.most_in_memory = 50;
  o.chunk = 10;
  lab l(o, std::move(kept));
  std::mt19937_64 random(seed);
  const std::vector<std::string> tubes{"a", "b", "c"};
  auto c = l.connect();
  int keys = 0;
  for (int step = 0; step < steps; ++step) {
    l.say(c, "use " + tubes[random() % 3] + "\r\n");
    const std::string key = "k" + std::to_string(keys == 0 ? 0 : random() % keys);
    switch (random() % 10) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
        l.say(c, "put-key k" + std::to_string(keys++) + " replace 0 " +
                     std::to_string(random() % (random() % 2 == 0 ? 600'000 : 90'000'000)) +
                     " 60000 1\r\nx\r\n");
        break;
      case 5:
        l.say(c, "cancel " + key + "\r\n");
        break;
      case 6:
        l.say(c, "reschedule " + key + " " + std::to_string(random() % 7'200'000) + "\r\n");
        break;
      case 7:
        l.say(c, "kick " + std::to_string(random() % 5) + "\r\n");
        break;
      case 8:
        l.pass(std::chrono::seconds(random() % 200));
        break;
      default:
        if (random() % 20 == 0) {
          l.restart();
          c = l.connect();
        } else if (random() % 20 == 0) {
          l.pass(std::chrono::hours(random() % 30));
        } else {
          l.say(c, "watch a\r\nreserve-with-timeout 0\r\nrelease " + std::to_string(1 + step / 2) +
                       " 0 300\r\n");
        }
    }
    if (step % 7 != 0) continue;
    const std::size_t minutes = random() % 2 == 0 ? 60 : 1'440;
    const auto v = ask<forecast_view>(l, command(verb::forecast, minutes));
    ASSERT_FALSE(v.known_until) << "seed " << seed << ", step " << step;
    ASSERT_EQ(v.minutes.size(), minutes);
    const auto wanted = listed(l, tubes);
    for (std::size_t m = 0; m < minutes; ++m) {
      const auto found = wanted.find(static_cast<std::int64_t>(m));
      ASSERT_EQ(v.minutes[m], found == wanted.end() ? 0 : found->second)
          << "seed " << seed << ", step " << step << ", minute " << m;
    }
  }
}

TEST(a_forecast, is_what_a_list_says_with_tasks_in_memory) {
  for (std::uint64_t seed = 1; seed <= verge::test::scale(20U, 3U); ++seed) {
    compare(make_memory_store(), seed, 700);
  }
}

TEST(a_forecast, is_what_a_list_says_with_tasks_on_disk) {
  std::string dir = (std::filesystem::temp_directory_path() / "verge-due-XXXXXX").string();
  ASSERT_NE(::mkdtemp(dir.data()), nullptr);
  for (std::uint64_t seed = 1; seed <= verge::test::scale(5U, 1U); ++seed) {
    rocks_options o;
    o.directory = dir + "/" + std::to_string(seed);
    o.mode = durability::written;
    compare(open_rocks_store(o), seed, 500);
  }
  std::filesystem::remove_all(dir);
}

// ---- A million ---------------------------------------------------------------------------------

class a_busy_server : public web_fixture {
 protected:
  /// Until the forecast is complete.
  json forecast() {
    json f;
    wait_until([&] {
      f = web().ask("GET", "/v1/forecast?minutes=120").json();
      return !f.contains("known_until");
    });
    return f["minutes"];
  }
};

TEST_F(a_busy_server, foresees_a_million_tasks_of_the_next_hour_also_after_a_restart) {
  const std::uint64_t tasks = verge::test::scale(1'000'000U, 20'000U);
  options_.broker.most_in_memory = tasks / 5;
  start();
  const auto from = std::make_shared<push::deaf_client>();
  // In the second hour, as minutes pass while they are put; more in some minutes than in others.
  const wall_time base = (wall_now() / minute + 60) * minute;
  std::map<std::int64_t, std::uint64_t> wanted;
  std::uint64_t n = 0;
  while (n < tasks) {
    command put(verb::put_many);
    put.tube = "orders";
    for (int i = 0; i < 1'000; ++i, ++n) {
      const auto m = static_cast<std::int64_t>(n % 50 * (n % 50) / 50);
      new_task& t = put.tasks.emplace_back();
      t.due = base + m * minute + static_cast<std::int64_t>(n % 60) * second;
      t.ttr = second;
      ++wanted[m];
    }
    server_->submit(from, std::move(put));
  }
  wait_until([&] { return web().ask("GET", "/v1/server").json()["delayed"] == n; });
  const auto check = [&] {
    const json minutes = forecast();
    const std::int64_t offset = base / minute - wall_now() / minute;
    std::uint64_t sum = 0;
    for (const json& m : minutes) sum += m.get<std::uint64_t>();
    EXPECT_EQ(sum, n);
    // The minute may change between the answer and the look at the clock.
    const auto fits = [&](std::int64_t at) {
      return std::all_of(wanted.begin(), wanted.end(), [&](const auto& w) {
        return minutes.at(static_cast<std::size_t>(at + w.first)) == w.second;
      });
    };
    EXPECT_TRUE(fits(offset) || fits(offset + 1));
  };
  check();
  restart();
  check();
}

}  // namespace
