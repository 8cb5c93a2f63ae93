// SPDX-License-Identifier: Apache-2.0

// What a store in a database has besides the others: tables with versions, and leases that fence.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <verge/runtime.h>
#include <verge/timeout.h>

#include "cluster/leases.h"
#include "postgres/postgres_store.h"
#include "postgres/schema.h"
#include "support/database.h"

#include <support/failures.h>

namespace {

using namespace verge::server;
using namespace verge::server::test;
using namespace std::chrono_literals;

class postgres_database : public testing::Test {
 protected:
  void SetUp() override {
    if (!database::is_installed()) GTEST_SKIP() << "PostgreSQL is not installed";
    base = &shared_database();
    base->empty();
    links = std::make_unique<postgres::pool>(base->options());
    commits = std::make_unique<postgres::joint_commits>(*links);
  }
  void prepare(std::uint32_t shards = 4) const {
    postgres::link to(base->options());
    postgres::prepare(to, shards);
  }
  static batch one_task(const task& t) {
    batch b;
    b.insertions.push_back({.fields = &t, .where = {.kind = place_kind::ready}, .body = "x"});
    return b;
  }

  database* base{nullptr};
  std::unique_ptr<postgres::pool> links;
  std::unique_ptr<postgres::joint_commits> commits;
};

TEST_F(postgres_database, gets_its_tables_once_though_many_servers_come_at_the_same_time) {
  std::vector<std::thread> servers;
  std::vector<postgres::layout> seen(8);
  for (postgres::layout& l : seen) {
    servers.emplace_back([this, &l] {
      postgres::link to(base->options());
      l = postgres::prepare(to, 7);
    });
  }
  for (std::thread& t : servers) t.join();
  for (const postgres::layout& l : seen) {
    EXPECT_EQ(l.version, 1U);
    EXPECT_EQ(l.shards, 7U);
    EXPECT_EQ(l.secret, seen.front().secret);
  }
  postgres::link to(base->options());
  EXPECT_EQ(postgres::prepare(to, 9).shards, 7U) << "what the tables were made for stays";
  EXPECT_EQ(cluster::look(to).shards.size(), 7U);
}

TEST_F(postgres_database, of_a_newer_version_is_refused) {
  prepare();
  postgres::link to(base->options());
  to.script("UPDATE verge_meta SET value = '99' WHERE name = 'version'");
  try {
    postgres::prepare(to, 4);
    FAIL() << "version 99 was taken";
  } catch (const store_error& e) {
    EXPECT_NE(std::string(e.what()).find("version 99"), std::string::npos) << e.what();
  }
}

TEST_F(postgres_database, that_cannot_be_reached_is_named_without_its_password) {
  postgres::link to({.url = "postgresql://me:secret@/none?host=/nowhere"});
  try {
    to.run_here({{"SELECT 1::int8", {}}});
    FAIL() << "it was reached";
  } catch (const postgres::link_error& e) {
    EXPECT_TRUE(e.nothing_done);
    EXPECT_EQ(std::string(e.what()).find("secret"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("cannot be reached"), std::string::npos) << e.what();
  }
}

TEST_F(postgres_database, without_fsync_is_refused_where_acknowledged_means_synced) {
  postgres::link to({.url = base->url(), .must_sync = true});
  EXPECT_THROW(to.run_here({{"SELECT 1::int8", {}}}), postgres::link_error);
}

TEST_F(postgres_database, takes_nothing_from_a_former_owner) {
  prepare();
  take_lease(*base, 1, 5);
  const auto former = postgres::open_postgres_store(*commits, {.shard = 1, .epoch = 5});
  task t;
  t.id = 1;
  t.tube = 1;
  former->write(one_task(t));
  take_lease(*base, 1, 6);
  const auto owner = postgres::open_postgres_store(*commits, {.shard = 1, .epoch = 6});
  batch removal;
  removal.removals.push_back({.id = 1, .tube = 1, .where = {}, .changed = false, .key = {}});
  EXPECT_THROW(former->write(removal), store_moved);
  EXPECT_TRUE(owner->find(1)) << "what the former owner has removed is there";
  EXPECT_THROW(former->write(removal), store_error) << "it does not go on";
}

TEST_F(postgres_database, takes_nothing_when_the_lease_has_ended) {
  prepare();
  take_lease(*base, 1, 5);
  postgres::link(base->options())
      .script("UPDATE verge_shard SET expires = now() - interval '1 second'");
  const auto owner = postgres::open_postgres_store(*commits, {.shard = 1, .epoch = 5});
  task t;
  t.id = 1;
  t.tube = 1;
  EXPECT_THROW(owner->write(one_task(t)), store_moved);
}

/// A server that takes the shard over waits for a batch that has begun, and then has what it wrote;
/// or it comes before it, and the batch is refused.
TEST_F(postgres_database, has_all_of_a_batch_or_refuses_it_when_another_server_takes_the_shard) {
  prepare();
  take_lease(*base, 1, 5);
  bool refused = false;
  std::thread batch([&] {
    postgres::link writer(base->options());
    try {
      writer.run_here(
          {{"SELECT 1 / count(*) FROM (SELECT 1 FROM verge_shard WHERE shard = 1 AND epoch = 5 "
            "AND expires > now() FOR SHARE) AS held",
            {}},
           {"SELECT pg_sleep(0.3)", {}},
           {"INSERT INTO verge_mark VALUES (1, 'batch', 1)", {}}});
    } catch (const postgres::refusal&) {
      refused = true;
    }
  });
  std::this_thread::sleep_for(100ms);
  postgres::link taker(base->options());
  taker.run_here({{"UPDATE verge_shard SET epoch = 6 WHERE shard = 1", {}}});
  const std::int64_t seen =
      taker.run_here({{"SELECT count(*)::int8 FROM verge_mark", {}}}).front().number(0, 0);
  batch.join();
  EXPECT_EQ(seen, refused ? 0 : 1);
}

/// The lease of a shard, locked until it is released: a transaction that needs it waits.
class locked_lease {
 public:
  locked_lease(const database& base, std::uint32_t shard) : key_(base.options()) {
    key_.run_here({{"SELECT pg_advisory_lock(7)", {}}});
    holder_ = std::thread([&base, shard] {
      postgres::link(base.options())
          .run_here({{"SELECT 1 FROM verge_shard WHERE shard = $1::int8 FOR UPDATE",
                      postgres::parameters().number(shard)},
                     {"SELECT pg_advisory_xact_lock(7)", {}}});
    });
    wait_for("advisory");
  }
  locked_lease(const locked_lease&) = delete;
  locked_lease& operator=(const locked_lease&) = delete;
  ~locked_lease() { release(); }

  /// Until a transaction waits for the lease.
  void wait_until_wanted() { wait_for("transactionid"); }
  void release() {
    if (!holder_.joinable()) return;
    key_.run_here({{"SELECT pg_advisory_unlock(7)", {}}});
    holder_.join();
  }

 private:
  void wait_for(const std::string& kind) {
    const std::string sql =
        "SELECT count(*)::int8 FROM pg_locks WHERE NOT granted AND locktype = '" + kind + "'";
    postgres::link to(shared_database().options());
    while (to.run_here({{sql.c_str(), {}}}).front().number(0, 0) == 0) {
      std::this_thread::sleep_for(1ms);
    }
  }

  postgres::link key_;
  std::thread holder_;
};

/// Commits a task to each of the shards, those after the first while the first waits. `failed`
/// gets those that throw store_moved.
void commit_to_all(database& base, postgres::joint_commits& commits,
                   const std::vector<postgres::shard_lease>& all,
                   std::vector<std::uint32_t>& failed) {
  locked_lease first(base, all.front().shard);
  const auto add = [&](postgres::shard_lease to) -> verge::task<> {
    task t;
    t.id = 1;
    t.tube = 1;
    batch b;
    b.insertions.push_back({.fields = &t, .where = {.kind = place_kind::ready}, .body = "x"});
    const auto s = postgres::open_postgres_store(commits, to);
    try {
      co_await s->commit(b);
    } catch (const store_moved&) {
      failed.push_back(to.shard);
    }
  };
  verge::runtime rt({.processors = 1});
  rt.run([&]() -> verge::task<> {
    std::vector<verge::join_handle<>> under_way;
    under_way.push_back(verge::go(add(all.front())));
    co_await verge::yield();
    verge::blocking([&] { first.wait_until_wanted(); });
    for (std::size_t i = 1; i < all.size(); ++i) under_way.push_back(verge::go(add(all[i])));
    for (int i = 0; i < 10; ++i) co_await verge::yield();
    verge::blocking([&] { first.release(); });
    for (auto& u : under_way) co_await u;
  });
}

TEST_F(postgres_database, writes_shards_that_commit_during_a_transaction_in_one_transaction) {
  prepare(4);
  for (std::uint32_t shard = 0; shard < 4; ++shard) take_lease(*base, shard, 5);
  std::vector<std::uint32_t> failed;
  commit_to_all(*base, *commits, {{2, 5}, {3, 5}, {0, 5}, {1, 5}}, failed);
  EXPECT_TRUE(failed.empty());
  const auto found =
      postgres::link(base->options())
          .run_here(
              {{"SELECT count(*)::int8, count(DISTINCT xmin::text)::int8 FROM verge_task", {}},
               {"SELECT count(*)::int8, count(DISTINCT xmin::text)::int8 FROM verge_task "
                "WHERE shard <> 2",
                {}}});
  EXPECT_EQ(found[0].number(0, 0), 4);
  EXPECT_EQ(found[0].number(0, 1), 2) << "transactions";
  EXPECT_EQ(found[1].number(0, 0), 3);
  EXPECT_EQ(found[1].number(0, 1), 1) << "transaction of those that came later";
}

TEST_F(postgres_database, takes_what_others_commit_in_the_same_transaction_as_a_former_owner) {
  prepare(4);
  for (std::uint32_t shard = 0; shard < 4; ++shard) take_lease(*base, shard, 5);
  take_lease(*base, 0, 6);
  std::vector<std::uint32_t> failed;
  commit_to_all(*base, *commits, {{2, 5}, {3, 5}, {0, 5}, {1, 5}}, failed);
  EXPECT_EQ(failed, std::vector<std::uint32_t>{0});
  const auto found = postgres::link(base->options())
                         .run_here({{"SELECT shard::int8 FROM verge_task ORDER BY shard", {}}});
  ASSERT_EQ(found[0].size(), 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(found[0].number(i, 0), i + 1);
}

/// A request for memory fails while a shard commits, the nth for every n: what is acknowledged is
/// there, and other shards go on.
TEST_F(postgres_database, has_what_was_acknowledged_and_takes_more_when_a_commit_had_no_memory) {
  prepare(4);
  take_lease(*base, 1, 5);
  take_lease(*base, 2, 5);
  // Some failures inside libpq are noticed only when no answer comes.
  auto impatient = base->options();
  impatient.patience = 5s;
  postgres::pool own_links(impatient);
  postgres::joint_commits own(own_links);
  verge::runtime rt({.processors = 1});
  int failures = 0;
  bool reached = true;
  for (std::int64_t n = 1; reached; ++n) {
    task t;
    t.id = static_cast<task_id>(n);
    t.tube = 1;
    const batch b = one_task(t);
    const auto first = postgres::open_postgres_store(own, {.shard = 1, .epoch = 5});
    const auto second = postgres::open_postgres_store(own, {.shard = 2, .epoch = 5});
    bool acknowledged = false;
    rt.run([&]() -> verge::task<> {
      verge::test::fail(verge::test::resource::memory, static_cast<long>(n), 1);
      try {
        co_await first->commit(b);
        acknowledged = true;
      } catch (const std::exception&) {
        ++failures;
      }
      reached = verge::test::has_failed();
      verge::test::fail_no_more();
      co_await verge::timeout(second->commit(b), 60s);
    });
    EXPECT_TRUE(!acknowledged || first->find(t.id)) << "request " << n;
    EXPECT_TRUE(second->find(t.id)) << "request " << n;
  }
  EXPECT_GT(failures, 5);
}

/// Rows are found by their keys, though the table was almost empty, and known to be, when the
/// connection was used first.
TEST_F(postgres_database, does_not_read_a_table_that_has_grown_to_remove_a_few_tasks) {
  prepare(4);
  take_lease(*base, 1, 5);
  const auto here = postgres::open_postgres_store(*commits, {.shard = 1, .epoch = 5});
  const auto removal = [](std::int64_t from, std::int64_t to) {
    batch b;
    for (std::int64_t id = from; id < to; ++id) {
      b.removals.push_back(
          {.id = static_cast<task_id>(id), .tube = 1, .where = {}, .changed = false, .key = {}});
    }
    return b;
  };
  task t;
  t.id = 1;
  t.tube = 1;
  here->write(one_task(t));
  postgres::link(base->options()).script("VACUUM ANALYZE verge_task");
  for (int i = 0; i < 10; ++i) here->write(removal(1, 2));
  postgres::link(base->options())
      .script(
          "INSERT INTO verge_task (shard, id, tube, kind, priority, at, key, fields, body) "
          "SELECT 1, g, 1, 2, 0, 0, '', '', '' FROM generate_series(10, 60000) AS g");
  const auto time_of = [](store& s, const batch& b) {
    const auto begin = std::chrono::steady_clock::now();
    s.write(b);
    return std::chrono::steady_clock::now() - begin;
  };
  postgres::pool new_links(base->options());
  postgres::joint_commits new_commits(new_links);
  const auto fresh = postgres::open_postgres_store(new_commits, {.shard = 1, .epoch = 5});
  auto old_link = std::chrono::steady_clock::duration::max();
  auto new_link = old_link;
  for (std::int64_t id = 10; id < 2010; id += 400) {
    old_link = std::min(old_link, time_of(*here, removal(id, id + 200)));
    new_link = std::min(new_link, time_of(*fresh, removal(id + 200, id + 400)));
  }
  EXPECT_LT(old_link, 20 * new_link);
}

TEST_F(postgres_database,
       gives_a_free_shard_to_one_server_and_renews_only_a_lease_that_has_not_ended) {
  prepare(3);
  verge::runtime rt;
  rt.run([this]() -> verge::task<> {
    const cluster::lease_times long_ones{.length = 1h};
    cluster::lease_table a(base->options(), long_ones);
    cluster::lease_table b(base->options(), long_ones);
    cluster::node_record first;
    first.name = "a";
    cluster::node_record second;
    second.name = "b";
    const std::vector<std::uint32_t> all{0, 1, 2};
    const std::vector<std::uint32_t> last{2};
    const std::vector<cluster::held_shard> nothing;
    const auto seen = co_await a.beat(first, nothing);
    EXPECT_EQ(seen.all.shards.size(), 3U);
    const auto taken = co_await a.take("a", all);
    EXPECT_EQ(taken.size(), 3U);
    const auto none = co_await b.take("b", all);
    EXPECT_TRUE(none.empty()) << "they are another server's";
    const auto again = co_await a.beat(first, taken);
    EXPECT_EQ(again.renewed.size(), 3U);
    // One is given up, one ends, one stays.
    const std::vector<cluster::held_shard> one(1, taken[0]);
    co_await a.give_up(one);
    postgres::link(base->options())
        .script("UPDATE verge_shard SET expires = now() - interval '1 second' WHERE shard = 1");
    const auto left = co_await a.beat(first, taken);
    EXPECT_EQ(left.renewed, last);
    const auto got = co_await b.take("b", all);
    EXPECT_EQ(got.size(), 2U);
    for (const cluster::held_shard& h : got) EXPECT_EQ(h.epoch, 2) << "of shard " << h.shard;
    const auto lost = co_await a.beat(first, taken);
    EXPECT_EQ(lost.renewed, last);
    const auto both = co_await b.beat(second, got);
    EXPECT_EQ(both.renewed.size(), 2U);
    EXPECT_EQ(both.all.nodes.size(), 2U);
  });
}

TEST_F(postgres_database, gives_free_shards_though_a_former_owner_still_has_one_locked) {
  prepare(3);
  locked_lease second(*base, 1);
  verge::runtime rt;
  rt.run([&]() -> verge::task<> {
    cluster::lease_table leases(base->options(), cluster::lease_times{.length = 1h});
    const std::vector<std::uint32_t> all{0, 1, 2};
    const auto others = co_await leases.take("a", all);
    EXPECT_EQ(others.size(), 2U);
    for (const cluster::held_shard& h : others) EXPECT_NE(h.shard, 1U);
    verge::blocking([&] { second.release(); });
    const std::vector<std::uint32_t> left(1, 1);
    const auto last = co_await leases.take("a", left);
    EXPECT_EQ(last.size(), 1U);
  });
}

TEST(placement, moves_only_the_shards_of_a_server_that_comes_or_leaves) {
  using cluster::node_record;
  std::vector<node_record> nodes(3);
  for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i].name = "node" + std::to_string(i);
  std::vector<node_record> fewer(nodes.begin(), nodes.begin() + 2);
  int moved = 0;
  std::vector<int> counts(3);
  for (std::uint32_t shard = 0; shard < 3000; ++shard) {
    const std::string with = cluster::place_of(shard, nodes)->name;
    const std::string without = cluster::place_of(shard, fewer)->name;
    ++counts[static_cast<std::size_t>(with.back() - '0')];
    if (with != without) {
      EXPECT_EQ(with, "node2");
      ++moved;
    }
  }
  EXPECT_EQ(moved, counts[2]);
  for (const int n : counts) EXPECT_NEAR(n, 1000, 150);
  EXPECT_EQ(cluster::place_of(1, {}), nullptr);
}

}  // namespace
