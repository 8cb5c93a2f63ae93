// SPDX-License-Identifier: Apache-2.0

// Steady churn: tasks come and go, about as many are there at any time, and the tables do not grow.
// Rows that were deleted or replaced stay in their pages until autovacuum has passed; what is
// tested is that it passes, with the settings that the tables have, and that the space is used
// again.
//
// The short version waits for autovacuum: it looks every second, and few more tasks than a limit
// come and go before it has passed once more, so that a slow machine makes it take longer and
// nothing else. VERGE_CHURN_SECONDS asks for the long one, which waits for nothing.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "nodes.h"
#include "support/database.h"

namespace {

using namespace verge::cluster_test;
using nlohmann::json;
using verge::server::test::database;
using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

/// Tasks that are put together: half of them are reserved and acked, half are delayed, have keys
/// and are cancelled.
constexpr int together = 50;
constexpr int clients = 4;

/// What a deleted task leaves behind if nothing is vacuumed is about 700 bytes: see the last test.
constexpr double few_bytes = 150;
constexpr double bytes_left = 700;

/// Clients that put and remove tasks, until they are told to end. From a limit on they do little: a
/// session of PostgreSQL that does nothing tells autovacuum only after ten seconds what it did.
class churn {
 public:
  explicit churn(std::uint16_t port) : port_(port) {
    for (int i = 0; i < clients; ++i) {
      all_.emplace_back([this, i] {
        while (!ending_.load()) {
          const bool slowly = done_.load() >= limit_.load();
          turn("tube" + std::to_string(i), slowly ? 2 : together);
          if (slowly) std::this_thread::sleep_for(100ms);
        }
      });
    }
  }
  churn(const churn&) = delete;
  churn& operator=(const churn&) = delete;
  ~churn() {
    ending_.store(true);
    for (std::thread& t : all_) t.join();
  }
  std::uint64_t done() const { return done_.load(); }
  /// No more tasks than this are there: what was done without an answer may be left behind.
  std::int64_t most_tasks() const { return (clients + doubts_.load()) * together; }
  void limit(std::uint64_t most) { limit_.store(most); }

 private:
  /// Until it is done: a server that the machine has left without a processor for longer than its
  /// leases last has no shards for a while, and what it was about to do may have been done or not.
  json expect(const std::string& method, const std::string& target, const std::string& body = "") {
    for (bool in_doubt = false;; in_doubt = true) {
      const auto r = ask(port_, method, target, body, 60s);
      if (r && r->status < 300) return json::parse(r->body);
      if (in_doubt && r && (r->status == 404 || r->status == 409)) return {};
      doubts_.fetch_add(1);
      if (!r || r->status != 503) {
        std::fprintf(stderr, "%s %s: %s\n", method.c_str(), target.c_str(),
                     r ? r->body.c_str() : "no answer");
        std::abort();
      }
      std::this_thread::sleep_for(500ms);
    }
  }
  void turn(const std::string& tube, int size) {
    const std::string at = "/v1/tubes/" + tube;
    json tasks = json::array();
    std::vector<std::string> keys;
    for (int i = 0; i < size; ++i) {
      json& one = tasks.emplace_back(json{{"body", std::string(200, 'b')}, {"ttr", 600'000}});
      if (i % 2 == 0) continue;
      keys.push_back("k" + std::to_string(next_.fetch_add(1)));
      one["key"] = keys.back();
      one["delay"] = 3'600'000;
    }
    expect("POST", at + "/tasks", tasks.dump());
    const json got = expect("POST", at + "/reserve?max=" + std::to_string(size / 2));
    for (const json& t : got.at("tasks")) {
      expect("POST", "/v1/leases/" + t.at("lease").get<std::string>() + "/ack");
    }
    for (const std::string& k : keys) expect("DELETE", at + "/keys/" + k);
    done_.fetch_add(static_cast<std::uint64_t>(size));
  }

  const std::uint16_t port_;
  std::atomic<std::uint64_t> done_{0}, limit_{~std::uint64_t{0}}, next_{0};
  std::atomic<std::int64_t> doubts_{0};
  std::atomic<bool> ending_{false};
  std::vector<std::thread> all_;
};

class tables {
 public:
  explicit tables(const database& of) : to_(of.options()) {}
  /// Of all tables, with indexes.
  std::int64_t bytes() {
    return number(
        "SELECT sum(pg_total_relation_size(oid))::int8 FROM pg_class "
        "WHERE relname LIKE 'verge\\_%' AND relkind = 'r'");
  }
  std::int64_t tasks() { return number("SELECT count(*) FROM verge_task"); }
  std::int64_t vacuums() {
    return number("SELECT autovacuum_count FROM pg_stat_user_tables WHERE relname = 'verge_task'");
  }

 private:
  std::int64_t number(const char* sql) { return to_.run_here({{sql, {}}})[0].number(0, 0); }
  verge::server::postgres::link to_;
};

struct growth {
  std::int64_t before{0};  ///< bytes
  std::int64_t after{0};
  std::uint64_t tasks{0};  ///< that came and went meanwhile
  double per_task() const {
    return static_cast<double>(after - before) / static_cast<double>(tasks);
  }
  void print(const char* what) const {
    std::printf("%s: %lld KB, then %lld KB after %llu tasks: %.0f bytes each\n", what,
                static_cast<long long>(before / 1024), static_cast<long long>(after / 1024),
                static_cast<unsigned long long>(tasks), per_task());
    std::fflush(stdout);
  }
};

/// The most that was seen in that time.
std::int64_t most_bytes_in(std::chrono::seconds length, tables& size) {
  std::int64_t most = 0;
  for (const auto end = steady::now() + length; steady::now() < end;) {
    most = std::max(most, size.bytes());
    std::this_thread::sleep_for(1s);
  }
  return most;
}

TEST(steady_churn, does_not_let_the_tables_grow) {
  if (!database::is_installed()) GTEST_SKIP() << "PostgreSQL is not installed";
  constexpr std::uint64_t between = 1'000;
  constexpr int warm = 3, all = 8;
  database base({"autovacuum_naptime=1s"});
  node server(base.url(), 10'000, "");
  ASSERT_TRUE(server.start());
  tables size(base);
  churn load(server.port());
  growth g;
  for (int i = 0; i < all; ++i) {
    if (i == warm) g = {.before = size.bytes(), .after = 0, .tasks = load.done()};
    const std::int64_t passed = size.vacuums();
    const std::uint64_t until = load.done() + between;
    load.limit(until);
    const auto end = steady::now() + 2min;
    while (load.done() < until || size.vacuums() == passed) {
      ASSERT_LT(steady::now(), end) << "autovacuum does not pass";
      std::this_thread::sleep_for(10ms);
    }
  }
  g.after = size.bytes();
  g.tasks = load.done() - g.tasks;
  g.print("steady churn");
  EXPECT_LE(size.tasks(), load.most_tasks()) << "not a steady number of tasks";
  // Between two passes the tables have room for what came meanwhile, and before one more may have
  // come than before any in the warm-up.
  const double room = bytes_left * static_cast<double>(between);
  EXPECT_LT(static_cast<double>(g.after - g.before),
            few_bytes * static_cast<double>(g.tasks) + room);
}

// The same for long, as fast as it goes: the last third against the one before.
TEST(steady_churn, does_not_let_the_tables_grow_in_an_hour) {
  const char* const given = std::getenv("VERGE_CHURN_SECONDS");
  if (given == nullptr) GTEST_SKIP() << "only in ./dev check cluster";
  if (!database::is_installed()) GTEST_SKIP() << "PostgreSQL is not installed";
  const std::chrono::seconds length(std::max(std::atoi(given), 6));
  // In an hour as PostgreSQL is installed; in less so that it passes as often.
  const auto nap = std::clamp<std::int64_t>(length.count() / 60, 1, 60);
  database base({"autovacuum_naptime=" + std::to_string(nap) + "s"});
  node server(base.url(), 10'000, "");
  ASSERT_TRUE(server.start());
  tables size(base);
  churn load(server.port());
  std::this_thread::sleep_for(length / 3);
  growth g{.before = 0, .after = 0, .tasks = load.done()};
  g.before = most_bytes_in(length / 3, size);
  g.after = most_bytes_in(length / 3, size);
  g.tasks = load.done() - g.tasks;
  g.print("long churn");
  EXPECT_LE(size.tasks(), load.most_tasks()) << "not a steady number of tasks";
  EXPECT_LT(static_cast<double>(g.after), 1.2 * static_cast<double>(g.before));
}

// That the test above can fail.
TEST(churn_without_vacuum, lets_the_tables_grow) {
  if (!database::is_installed()) GTEST_SKIP() << "PostgreSQL is not installed";
  database base({"autovacuum=off"});
  node server(base.url(), 10'000, "");
  ASSERT_TRUE(server.start());
  tables size(base);
  churn load(server.port());
  const auto wait_for = [&load](std::uint64_t tasks) {
    const auto end = steady::now() + 2min;
    while (load.done() < tasks && steady::now() < end) std::this_thread::sleep_for(10ms);
  };
  wait_for(1'000);
  growth g{.before = size.bytes(), .after = 0, .tasks = load.done()};
  wait_for(4'000);
  g.after = size.bytes();
  g.tasks = load.done() - g.tasks;
  g.print("churn without vacuum");
  EXPECT_GT(g.per_task(), 2 * few_bytes);
}

}  // namespace
