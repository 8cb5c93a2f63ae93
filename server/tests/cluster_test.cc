// SPDX-License-Identifier: Apache-2.0

// Several servers that share a database, in one process.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cluster/frames.h"
#include "cluster/lag.h"
#include "cluster/tube_hash.h"
#include "postgres/schema.h"
#include "serve/server.h"
#include "support/contract.h"
#include "support/database.h"
#include "support/wire.h"

namespace {

using namespace verge::server;
using namespace verge::server::test;
using namespace std::chrono_literals;

class servers : public testing::Test {
 protected:
  void SetUp() override {
    if (!database::is_installed()) GTEST_SKIP() << "PostgreSQL is not installed";
    base = &shared_database();
    base->empty();
  }

  std::unique_ptr<task_server> start() const {
    server_options o;
    o.listen = verge::endpoint::loopback(0);
    o.http.emplace().listen = verge::endpoint::loopback(0);
    o.database = base->url();
    o.shards = 24;  // so that each of two servers gets some
    o.mode = durability::written;
    o.processors = 2;
    // A machine that stands still for a while does not lose them.
    o.leases.length = 10min;
    o.database_patience = 2min;
    return std::make_unique<task_server>(o);
  }
  static wire to(const task_server& s) { return wire(s.address().port()); }
  /// Until each has shards.
  static void wait_for_balance(const std::vector<task_server*>& all) {
    for (task_server* const s : all) {
      for (;;) {
        bool has = false;
        for (std::uint32_t i = 0; i < s->members()->shards(); ++i) {
          has |= s->members()->local(i) != nullptr;
        }
        if (has) break;
        std::this_thread::sleep_for(10ms);
      }
    }
  }
  static std::string put(wire& w, const std::string& tube, const std::string& body, int delay = 0,
                         int ttr = 60) {
    w.ask("use " + tube + "\r\n");
    return w.ask("put 5 " + std::to_string(delay) + " " + std::to_string(ttr) + " " +
                 std::to_string(body.size()) + "\r\n" + body + "\r\n");
  }
  static std::string id_in(const std::string& reply) {
    const std::size_t from = reply.find(' ') + 1;
    return reply.substr(from, reply.find_first_of(" \r", from) - from);
  }

  database* base{nullptr};
};

TEST_F(servers, one_serves_as_with_a_directory) {
  const auto s = start();
  wire w = to(*s);
  const std::string id = id_in(put(w, "mail", "hello"));
  w.ask("watch mail\r\n");
  EXPECT_EQ(w.ask("reserve\r\n"), "RESERVED " + id + " 5\r\nhello\r\n");
  EXPECT_EQ(w.ask("touch " + id + "\r\n"), "TOUCHED\r\n");
  EXPECT_EQ(w.ask("release " + id + " 3 0\r\n"), "RELEASED\r\n");
  EXPECT_EQ(w.ask("reserve\r\n"), "RESERVED " + id + " 5\r\nhello\r\n");
  EXPECT_EQ(w.ask("bury " + id + " 3\r\n"), "BURIED\r\n");
  EXPECT_EQ(w.ask("peek-buried\r\n"), "FOUND " + id + " 5\r\nhello\r\n");
  EXPECT_EQ(w.ask("kick 10\r\n"), "KICKED 1\r\n");
  EXPECT_EQ(w.ask("reserve\r\n"), "RESERVED " + id + " 5\r\nhello\r\n");
  EXPECT_EQ(w.ask("delete " + id + "\r\n"), "DELETED\r\n");
  EXPECT_EQ(w.ask("delete " + id + "\r\n"), "NOT_FOUND\r\n");
  EXPECT_EQ(w.ask("reserve-with-timeout 0\r\n"), "TIMED_OUT\r\n");
  EXPECT_EQ(w.ask("put-key k keep 0 60000 30000 2\r\nab\r\n").substr(0, 8), "INSERTED");
}

TEST_F(servers, hand_out_what_is_ready_to_a_client_that_does_not_wait) {
  const auto a = start();
  const auto b = start();
  wait_for_balance({a.get(), b.get()});
  wire at_a = to(*a);
  for (int i = 0; i < 20; ++i) {
    const std::string tube = "tube" + std::to_string(i);
    const std::string id = id_in(put(at_a, tube, "now"));
    at_a.ask("watch " + tube + "\r\n");
    at_a.ask(i == 0 ? "ignore default\r\n" : "ignore tube" + std::to_string(i - 1) + "\r\n");
    EXPECT_EQ(at_a.ask("reserve-with-timeout 0\r\n"), "RESERVED " + id + " 3\r\nnow\r\n");
    EXPECT_EQ(at_a.ask("reserve-with-timeout 0\r\n"), "TIMED_OUT\r\n");
  }
}

/// The keys of a batch are looked up together, before any of its commands is executed: what the
/// commands before have changed counts.
TEST_F(servers, know_what_became_of_a_key_within_one_batch) {
  const auto s = start();
  wire w = to(*s);
  const auto put_key = [](const char* mode) {
    return std::string("put-key k ").append(mode).append(" 0 0 60000 1\r\nx\r\n");
  };
  ASSERT_EQ(w.ask(put_key("keep")).substr(0, 8), "INSERTED");
  for (int i = 0; i < 20; ++i) {
    w.send(put_key("keep") + "cancel k\r\n" + put_key("keep") + put_key("refuse") +
           put_key("replace") + put_key("keep"));
    EXPECT_EQ(w.reply().substr(0, 4), "KEPT");
    EXPECT_EQ(w.reply().substr(0, 9), "CANCELLED");
    EXPECT_EQ(w.reply().substr(0, 8), "INSERTED");
    EXPECT_EQ(w.reply().substr(0, 6), "EXISTS");
    EXPECT_EQ(w.reply().substr(0, 8), "REPLACED");
    EXPECT_EQ(w.reply().substr(0, 4), "KEPT");
  }
}

TEST_F(servers, keep_tasks_over_a_restart) {
  std::string id;
  {
    const auto s = start();
    wire w = to(*s);
    id = id_in(put(w, "mail", "hello", 0));
    put(w, "mail", "later", 100);
  }
  const auto s = start();
  wire w = to(*s);
  w.ask("watch mail\r\n");
  EXPECT_EQ(w.ask("reserve\r\n"), "RESERVED " + id + " 5\r\nhello\r\n");
  EXPECT_EQ(w.ask("reserve-with-timeout 0\r\n"), "TIMED_OUT\r\n");
}

TEST_F(servers, pass_commands_on_to_the_one_that_has_the_tube) {
  const auto a = start();
  const auto b = start();
  wait_for_balance({a.get(), b.get()});
  wire at_a = to(*a);
  wire at_b = to(*b);
  std::set<std::string> ids;
  for (int i = 0; i < 40; ++i) {
    const std::string tube = "tube" + std::to_string(i);
    const std::string id = id_in(put(at_a, tube, "from a"));
    EXPECT_TRUE(ids.insert(id).second) << id << " was given twice";
    EXPECT_EQ(at_b.ask("peek " + id + "\r\n"), "FOUND " + id + " 6\r\nfrom a\r\n");
    EXPECT_EQ(at_b.ask("watch " + tube + "\r\n").substr(0, 8), "WATCHING");
    if (i > 0) at_b.ask("ignore tube" + std::to_string(i - 1) + "\r\n");
    EXPECT_EQ(at_b.ask("reserve-with-timeout 100\r\n"), "RESERVED " + id + " 6\r\nfrom a\r\n");
    EXPECT_EQ(at_a.ask("delete " + id + "\r\n"), "NOT_FOUND\r\n") << "the other client has it";
    EXPECT_EQ(at_b.ask("delete " + id + "\r\n"), "DELETED\r\n");
  }
}

TEST_F(servers, hand_a_task_to_one_client_that_waits_at_many_shards) {
  const auto a = start();
  const auto b = start();
  wait_for_balance({a.get(), b.get()});
  wire worker = to(*a);
  wire second = to(*b);
  for (int i = 0; i < 20; ++i) {
    worker.ask("watch tube" + std::to_string(i) + "\r\n");
    second.ask("watch tube" + std::to_string(i) + "\r\n");
  }
  wire producer = to(*b);
  for (int i = 0; i < 40; ++i) {
    wire& waiting = i % 2 == 0 ? worker : second;
    waiting.send("reserve-with-timeout 100\r\n");
    const std::string id = id_in(put(producer, "tube" + std::to_string(i % 20), "x"));
    EXPECT_EQ(waiting.reply(), "RESERVED " + id + " 1\r\nx\r\n");
    EXPECT_EQ(waiting.ask("delete " + id + "\r\n"), "DELETED\r\n");
  }
  // What was handed out twice at the same time has been given back: nothing is left, or held.
  EXPECT_EQ(worker.ask("reserve-with-timeout 0\r\n"), "TIMED_OUT\r\n");
  EXPECT_NE(producer.ask("stats\r\n").find("current-jobs-reserved: 0\n"), std::string::npos);
}

TEST_F(servers, show_one_another_over_http) {
  const auto a = start();
  const auto b = start();
  wait_for_balance({a.get(), b.get()});
  contract judge(VERGE_OPENAPI);
  std::set<std::string> answered;
  for (task_server* const s : {a.get(), b.get()}) {
    const http_answer got = http_wire(s->http_address()->port()).ask("GET", "/v1/cluster");
    ASSERT_EQ(judge.fault("GET", "/v1/cluster", got), "");
    ASSERT_EQ(got.status, 200);
    const auto shown = got.json();
    EXPECT_EQ(shown["answers"], s->members()->name());
    answered.insert(shown["answers"]);
    std::map<std::string, int> has;
    for (const auto& one : shown["servers"]) has[one["name"]] = one["shards"];
    ASSERT_EQ(has.size(), 2U);
    EXPECT_TRUE(has.contains(a->members()->name()));
    EXPECT_TRUE(has.contains(b->members()->name()));
    ASSERT_EQ(shown["shards"].size(), 24U);
    for (std::size_t i = 0; i < 24; ++i) {
      const auto& one = shown["shards"][i];
      EXPECT_EQ(one["shard"], i);
      // One that is on its way from one to the other has none.
      if (one.contains("owner")) --has[one["owner"]];
      EXPECT_GE(one["epoch"], 1);
    }
    for (const auto& [name, left] : has) EXPECT_EQ(left, 0) << name;
  }
  EXPECT_EQ(answered.size(), 2U);
}

TEST_F(servers, that_are_not_there_leave_a_lag_that_the_next_one_works_off) {
  const std::uint32_t shard = cluster::shard_of_tube("mail", 24);
  postgres::link link(base->options());
  {
    const auto s = start();
    wire w = to(*s);
    put(w, "mail", "soon", 1);
    put(w, "mail", "later", 100'000);
    put(w, "other", "later", 100'000);
  }
  // No server makes it ready.
  cluster::lags found;
  while ((found = cluster::look_at_lags(link))[shard] < 1500ms) std::this_thread::sleep_for(20ms);
  EXPECT_EQ(found.size(), 1U) << "what is due later is not behind";
  const auto s = start();
  wire w = to(*s);
  w.ask("watch mail\r\n");
  EXPECT_EQ(w.ask("reserve\r\n").substr(0, 8), "RESERVED");
  while (!cluster::look_at_lags(link).empty()) std::this_thread::sleep_for(20ms);
}

TEST_F(servers, hand_their_shards_over_when_they_end) {
  auto a = start();
  const auto b = start();
  wait_for_balance({a.get(), b.get()});
  std::vector<std::pair<std::string, std::string>> tasks;
  {
    wire at_a = to(*a);
    for (int i = 0; i < 30; ++i) {
      const std::string tube = "tube" + std::to_string(i);
      tasks.emplace_back(tube, id_in(put(at_a, tube, "x")));
    }
  }
  wire at_b = to(*b);
  wire waiting = to(*b);
  waiting.ask("watch new\r\n");
  waiting.send("reserve-with-timeout 100\r\n");
  // The leases last for minutes: they are not waited for.
  a->stop();
  for (const auto& [tube, id] : tasks) {
    std::string found;
    while ((found = at_b.ask("peek " + id + "\r\n")) == "INTERNAL_ERROR\r\n") {
    }
    EXPECT_EQ(found, "FOUND " + id + " 1\r\nx\r\n");
  }
  const std::string id = id_in(put(at_b, "new", "n"));
  EXPECT_EQ(waiting.reply(), "RESERVED " + id + " 1\r\nn\r\n") << "a wait survives the move";
}

TEST_F(servers, are_a_way_to_the_others_when_they_have_given_their_shards_up) {
  const auto a = start();
  const auto b = start();
  wait_for_balance({a.get(), b.get()});
  wire at_a = to(*a);
  wire waiting = to(*a);
  waiting.ask("watch tube7\r\n");
  waiting.send("reserve\r\n");
  a->members()->leave();
  for (int i = 0; i < 20; ++i) {
    const std::string put_there = put(at_a, "tube" + std::to_string(i), "x");
    EXPECT_EQ(put_there.substr(0, 8), "INSERTED") << put_there;
  }
  EXPECT_EQ(waiting.reply().substr(0, 8), "RESERVED");
}

TEST_F(servers, give_a_lease_that_outlasts_the_server_that_gave_it) {
  auto a = start();
  wire first = to(*a);
  const auto b = start();
  wait_for_balance({a.get(), b.get()});
  // A tube of the first server's, taken by a client of the second.
  std::string tube;
  for (int i = 0; tube.empty(); ++i) {
    const std::string name = "tube" + std::to_string(i);
    if (a->members()->local(a->members()->shard_of(name)) != nullptr) tube = name;
  }
  const std::string id = id_in(put(first, tube, "x"));
  wire worker = to(*b);
  worker.ask("watch " + tube + "\r\n");
  EXPECT_EQ(worker.ask("reserve-with-timeout 100\r\n"), "RESERVED " + id + " 1\r\nx\r\n");
  a->stop();
  wire other = to(*b);
  other.ask("watch " + tube + "\r\n");
  EXPECT_EQ(other.ask("reserve-with-timeout 0\r\n"), "TIMED_OUT\r\n") << "it is leased";
  EXPECT_EQ(worker.ask("delete " + id + "\r\n"), "DELETED\r\n");
}

TEST_F(servers, carry_a_dead_task_to_a_tube_of_another_shard) {
  const auto s = start();
  wire w = to(*s);
  for (int i = 0; i < 12; ++i) {
    const std::string dead = "dead" + std::to_string(i);
    w.ask("use work\r\n");
    const std::string put = w.ask("put-ms 0 0 60000 4 attempts=1 dead=" + dead + "\r\nbody\r\n");
    ASSERT_EQ(put.substr(0, 8), "INSERTED");
    const std::string id = id_in(put);
    EXPECT_EQ(w.ask("reserve-job " + id + "\r\n").substr(0, 8), "RESERVED");
    EXPECT_EQ(w.ask("release " + id + " 0 0\r\n"), "RELEASED\r\n");
    w.ask("watch " + dead + "\r\n");
    const std::string got = w.ask("reserve-with-timeout 100\r\n");
    EXPECT_NE(got.find(" 4\r\nbody\r\n"), std::string::npos) << got;
    EXPECT_EQ(w.ask("delete " + id_in(got) + "\r\n"), "DELETED\r\n");
  }
  EXPECT_EQ(w.ask("reserve-with-timeout 0\r\n"), "TIMED_OUT\r\n");
}

/// In a database of its own, which is stopped.
TEST(a_server, says_that_its_database_does_not_answer_and_goes_on_when_it_does) {
  if (!database::is_installed()) GTEST_SKIP() << "PostgreSQL is not installed";
  database base;
  server_options o;
  o.listen = verge::endpoint::loopback(0);
  o.http.emplace().listen = verge::endpoint::loopback(0);
  o.database = base.url();
  o.shards = 4;
  o.mode = durability::written;
  task_server s(o);
  wire w(s.address().port());
  ASSERT_EQ(w.ask("put 0 0 60 1\r\nx\r\n").substr(0, 8), "INSERTED");
  base.stop();
  EXPECT_EQ(w.ask("put 0 0 60 1\r\ny\r\n"), "INTERNAL_ERROR\r\n");
  while (s.members()->trouble().empty()) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(w.ask("reserve-with-timeout 1\r\n").substr(0, 8), "INTERNAL");
  const http_answer refused =
      http_wire(s.http_address()->port()).ask("POST", "/v1/tubes/t/tasks", R"({"body": "v"})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.json()["detail"].get<std::string>(), testing::HasSubstr("the database"));
  base.start();
  const auto retry = [&](const std::string& request) {
    for (;;) {
      const std::string r = w.ask(request);
      if (r != "INTERNAL_ERROR\r\n") return r;
    }
  };
  EXPECT_EQ(retry("put 0 0 60 1\r\nz\r\n").substr(0, 8), "INSERTED");
  EXPECT_EQ(w.ask("reserve\r\n").substr(0, 8), "RESERVED") << "what was acknowledged is there";
}

TEST(frames, give_back_what_was_sent) {
  using namespace cluster;
  frame f;
  f.kind = frame_kind::command;
  f.lane = 1'000'000'007;
  f.what.what = verb::put_many;
  f.what.tube = "mail";
  f.what.limit = -5;
  f.what.watch = {"a", "b"};
  f.what.within = std::make_shared<const tube_filter>(tube_filter{.patterns = {"x*"}});
  f.what.once = std::make_shared<const once_key>(once_key{.key = "k", .print = "p"});
  new_task& n = f.what.tasks.emplace_back();
  n.body = std::string("\0\xff", 2);
  n.due = -1;
  n.mode = if_exists::refuse;
  frame g;
  g.kind = frame_kind::reply;
  g.said.what = answer::reserved;
  g.said.task.body = std::make_shared<const std::string>("body");
  auto fields = std::make_shared<task>();
  fields->id = ~0ULL;
  fields->lease_end = -7;
  fields->push = std::make_shared<const push_part>(push_part{.url = "u", .answer = "a"});
  g.said.task.fields = fields;
  g.said.each = {{answer::kept, 9}};
  survey_view v;
  v.tubes.emplace_back().name = "t";
  v.all.commands[3] = 4;
  v.all.lateness.counts[2] = 7;
  g.said.shown = std::make_shared<const view>(v);
  std::string bytes;
  append(bytes, f);
  append(bytes, g);
  for (std::size_t cut = 0; cut + 1 < 40; ++cut) {
    std::string_view part = std::string_view(bytes).substr(0, cut);
    frame none;
    EXPECT_FALSE(take(part, none)) << cut;
  }
  std::string_view in = bytes;
  frame a;
  ASSERT_TRUE(take(in, a));
  EXPECT_EQ(a.lane, f.lane);
  EXPECT_EQ(a.what.what, verb::put_many);
  EXPECT_EQ(a.what.limit, -5);
  EXPECT_EQ(a.what.watch, f.what.watch);
  EXPECT_EQ(a.what.within->patterns, f.what.within->patterns);
  EXPECT_EQ(a.what.once->print, "p");
  ASSERT_EQ(a.what.tasks.size(), 1U);
  EXPECT_EQ(a.what.tasks[0].body, n.body);
  EXPECT_EQ(a.what.tasks[0].due, -1);
  EXPECT_EQ(a.what.tasks[0].mode, if_exists::refuse);
  ASSERT_TRUE(take(in, a));
  EXPECT_EQ(*a.said.task.body, "body");
  EXPECT_EQ(a.said.task.fields->id, ~0ULL);
  EXPECT_EQ(a.said.task.fields->lease_end, -7);
  EXPECT_EQ(a.said.task.fields->push->answer, "a");
  EXPECT_EQ(a.said.each, g.said.each);
  EXPECT_EQ(std::get<survey_view>(*a.said.shown).tubes[0].name, "t");
  EXPECT_EQ(std::get<survey_view>(*a.said.shown).all.commands[3], 4U);
  EXPECT_EQ(std::get<survey_view>(*a.said.shown).all.lateness.counts[2], 7U);
  EXPECT_TRUE(in.empty());
}

TEST(frames, that_are_cut_or_changed_are_refused_or_are_others) {
  using namespace cluster;
  frame f;
  f.kind = frame_kind::command;
  f.what.tube = "mail";
  f.what.tasks.emplace_back().body = "body";
  std::string whole;
  append(whole, f);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const int change : {1, 0x80, 0xff}) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ change);
      std::string_view in = bytes;
      frame g;
      try {
        static_cast<void>(take(in, g));
      } catch (const std::runtime_error&) {
      }
    }
  }
}

}  // namespace
