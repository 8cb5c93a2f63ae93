// SPDX-License-Identifier: Apache-2.0

// Tasks go from a directory to a database and back, and are the same.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "cluster/move.h"
#include "postgres/schema.h"
#include "store/rocks_store.h"
#include "support/database.h"
#include "support/lab.h"

namespace {

using namespace verge::server;
using namespace verge::server::test;
using namespace std::chrono_literals;

/// What of a task does not depend on where it is, by its body, which names it.
using seen =
    std::map<std::string, std::tuple<std::string, task_state, std::uint32_t, wall_time, std::string,
                                     std::string, std::uint32_t, lease_token>>;

seen all_in(store& s, std::vector<std::string>& order) {
  seen found;
  for (const tube_record& t : s.recover().tubes) {
    for (const place_kind kind : {place_kind::delayed, place_kind::ready, place_kind::buried}) {
      for (const stored_task& one : s.scan(t.number, beginning_of(kind), 10'000)) {
        const task& f = one.fields;
        const std::string body = s.body_of(f.id);
        order.push_back(t.name + "/" + body);
        found[body] = {t.name, f.state,       f.priority, f.due,
                       f.key,  f.dead_letter, f.reserves, f.token};
      }
    }
  }
  return found;
}

TEST(move, keeps_every_task_from_a_directory_to_a_database_and_back) {
  if (!database::is_installed()) GTEST_SKIP() << "PostgreSQL is not installed";
  database& base = shared_database();
  base.empty();
  std::string name = (std::filesystem::temp_directory_path() / "verge-move-XXXXXX").string();
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  const std::string first = name + "/first";
  const std::string second = name + "/second";
  std::size_t notes = 0;
  std::vector<std::string> order_before;
  {
    lab l({}, open_rocks_store({.directory = first}));
    const auto c = l.connect();
    for (int i = 0; i < 300; ++i) {
      const std::string n = std::to_string(i);
      l.say(c, "use tube" + std::to_string(i % 13) + "\r\n");
      const std::string body = "body" + n;
      const std::string tail = std::to_string(body.size()) + " attempts=3 dead=dead" +
                               std::to_string(i % 5) + "\r\n" + body + "\r\n";
      const std::string pri = std::to_string(i % 7 * 400);
      const std::string delay = i % 3 == 0 ? "500000" : "0";
      l.say(c, i % 4 == 0 ? "put-key k" + n + " keep " + pri + " " + delay + " 60000 " + tail
                          : "put-ms " + pri + " " + delay + " 60000 " + tail);
    }
    for (int i = 0; i < 40; ++i) {
      l.say(c, "watch tube" + std::to_string(i % 13) + "\r\n");
      const std::string got = l.say(c, "reserve-with-timeout 0\r\n");
      const std::string id = got.substr(9, got.find(' ', 9) - 9);
      if (i % 3 == 0) l.say(c, "bury " + id + " 5\r\n");
      if (i % 3 == 1) l.say(c, "release " + id + " 5 100\r\n");
    }
    l.say(c, "pause-tube tube1 100\r\n");
    command limit(verb::limit);
    limit.tube = "tube3";
    limit.most = 5000;
    l.run(c, limit);
  }
  const seen before = [&] {
    const auto s = open_rocks_store({.directory = first});
    notes = s->recover().notes.size();
    return all_in(*s, order_before);
  }();
  ASSERT_EQ(before.size(), 300U);
  EXPECT_EQ(notes, 1U);

  const cluster::move_report there = cluster::move_to_database(first, base.options(), 8);
  EXPECT_EQ(there.tasks, 300U);
  EXPECT_THROW(cluster::move_to_database(first, base.options(), 8), store_error)
      << "it has tasks already";
  EXPECT_THROW(cluster::move_to_directory(base.options(), first), store_error) << "it exists";
  const cluster::move_report back = cluster::move_to_directory(base.options(), second);
  EXPECT_EQ(back.tasks, 300U);
  EXPECT_EQ(back.notes, notes);

  const check_report checked = check_rocks_store(second);
  EXPECT_EQ(checked.fault_count, 0U) << (checked.faults.empty() ? "" : checked.faults.front());
  const auto s = open_rocks_store({.directory = second});
  std::vector<std::string> order_after;
  EXPECT_EQ(all_in(*s, order_after), before);
  // Within each tube the order is the same; tubes have other numbers.
  std::stable_sort(order_before.begin(), order_before.end(), [](const auto& a, const auto& b) {
    return a.substr(0, a.find('/')) < b.substr(0, b.find('/'));
  });
  std::stable_sort(order_after.begin(), order_after.end(), [](const auto& a, const auto& b) {
    return a.substr(0, a.find('/')) < b.substr(0, b.find('/'));
  });
  EXPECT_EQ(order_after, order_before);
  std::filesystem::remove_all(name);
}

TEST(move, refuses_a_database_that_a_server_has) {
  if (!database::is_installed()) GTEST_SKIP() << "PostgreSQL is not installed";
  database& base = shared_database();
  base.empty();
  postgres::link to(base.options());
  postgres::prepare(to, 4);
  take_lease(base, 2, 1);
  EXPECT_THROW(cluster::move_to_directory(base.options(), "/tmp/verge-move-never"), store_error);
}

}  // namespace
