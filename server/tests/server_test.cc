// SPDX-License-Identifier: Apache-2.0

// The server from outside: sockets, RocksDB, connections that come and go.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "serve/server.h"
#include "store/rocks_store.h"
#include "support/scale.h"
#include "support/wire.h"

namespace {

using namespace verge::server;
using namespace verge::server::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

class a_server : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "verge-server-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
    options_.listen = verge::endpoint::loopback(0);
    options_.directory = dir_ / "tasks";
    options_.mode = durability::written;  // a test does not lose power
  }
  void TearDown() override {
    server_.reset();
    fs::remove_all(dir_);
  }
  void start() { server_ = std::make_unique<task_server>(options_); }
  void restart() {
    server_.reset();
    start();
  }
  wire connect() { return wire(server_->address().port()); }
  /// Waits until the server says so of itself.
  void wait_for(const std::string& line) {
    wire w = connect();
    while (w.ask("stats\r\n").find(line + "\n") == std::string::npos) {
      std::this_thread::sleep_for(1ms);
    }
  }

  fs::path dir_;
  server_options options_;
  std::unique_ptr<task_server> server_;
};

TEST_F(a_server, keeps_tasks_over_a_restart) {
  start();
  {
    wire w = connect();
    EXPECT_EQ(w.ask("put 5 0 60 5\r\nready\r\n"), "INSERTED 1\r\n");
    EXPECT_EQ(w.ask("put 6 3600 60 7\r\ndelayed\r\n"), "INSERTED 2\r\n");
    EXPECT_EQ(w.ask("put 1 0 60 6\r\nburied\r\n"), "INSERTED 3\r\n");
    EXPECT_EQ(w.ask("reserve\r\n"), "RESERVED 3 6\r\nburied\r\n");
    EXPECT_EQ(w.ask("bury 3 9\r\n"), "BURIED\r\n");
    EXPECT_EQ(w.ask("use other\r\n"), "USING other\r\n");
    EXPECT_EQ(w.ask("put-key order-1 keep 0 3600000 60000 3\r\nkey\r\n"), "INSERTED 4\r\n");
  }
  restart();
  wire w = connect();
  EXPECT_EQ(w.ask("peek-ready\r\n"), "FOUND 1 5\r\nready\r\n");
  EXPECT_EQ(w.ask("peek-delayed\r\n"), "FOUND 2 7\r\ndelayed\r\n");
  EXPECT_EQ(w.ask("peek-buried\r\n"), "FOUND 3 6\r\nburied\r\n");
  EXPECT_EQ(w.ask("use other\r\n"), "USING other\r\n");
  EXPECT_EQ(w.ask("put-key order-1 refuse 0 0 60000 3\r\nkey\r\n"), "EXISTS 4\r\n");
  EXPECT_EQ(w.ask("reschedule order-1 0\r\n"), "RESCHEDULED 4\r\n");
  EXPECT_EQ(w.ask("cancel order-1\r\n"), "CANCELLED\r\n");
  EXPECT_EQ(w.ask("cancel order-1\r\n"), "NOT_FOUND\r\n");
  EXPECT_EQ(w.ask("put 0 0 60 1\r\nx\r\n"), "INSERTED 5\r\n") << "after an orderly end ids go on";
  server_.reset();
  const check_report r = check_rocks_store(options_.directory);
  EXPECT_EQ(r.tasks, 4U);
  EXPECT_EQ(r.fault_count, 0U) << r.faults[0];
}

TEST_F(a_server, counts_what_it_has_on_disk_after_a_restart) {
  options_.broker.most_in_memory = 10;
  options_.broker.chunk = 10;
  start();
  {
    wire w = connect();
    for (int i = 0; i < 500; ++i) {
      w.send("put " + std::to_string(i * 5) + (i % 2 == 0 ? " 0" : " 3600") + " 60 1\r\nx\r\n");
    }
    for (int i = 0; i < 500; ++i) EXPECT_TRUE(w.reply().starts_with("INSERTED"));
  }
  restart();
  wire w = connect();
  const std::string s = w.ask("stats-tube default\r\n");
  EXPECT_NE(s.find("current-jobs-ready: 250\n"), std::string::npos) << s;
  EXPECT_NE(s.find("current-jobs-delayed: 250\n"), std::string::npos) << s;
  EXPECT_NE(s.find("current-jobs-urgent: 103\n"), std::string::npos) << s;
  for (int i = 0; i < 500; i += 2) {
    EXPECT_EQ(w.ask("reserve-with-timeout 0\r\n"),
              "RESERVED " + std::to_string(i + 1) + " 1\r\nx\r\n");
  }
  EXPECT_EQ(w.ask("kick 1000\r\n"), "KICKED 250\r\n");
}

TEST_F(a_server, answers_a_half_closed_client_that_waits) {
  options_.in_memory = true;
  start();
  wire w = connect();
  w.send("reserve\r\nlist-tube-used\r\n");
  w.finish();
  EXPECT_EQ(w.rest(), "TIMED_OUT\r\nUSING default\r\n");
}

TEST_F(a_server, answers_all_before_it_lets_one_quit) {
  options_.in_memory = true;
  start();
  wire w = connect();
  w.send("put 0 0 60 1\r\nx\r\nreserve\r\nquit\r\nlist-tubes\r\n");
  EXPECT_EQ(w.rest(), "INSERTED 1\r\nRESERVED 1 1\r\nx\r\n");
  wire other = connect();
  EXPECT_EQ(other.ask("reserve-with-timeout 10\r\n"), "RESERVED 1 1\r\nx\r\n");
}

TEST_F(a_server, gives_back_what_a_lost_client_had_reserved) {
  options_.in_memory = true;
  start();
  const int tasks = verge::test::scale(1000, 100);
  wire producer = connect();
  for (int i = 0; i < tasks; ++i) {
    ASSERT_TRUE(producer.ask("put 0 0 600 1\r\nx\r\n").starts_with("INSERTED"));
  }
  {
    wire worker = connect();
    for (int i = 0; i < tasks; ++i) {
      ASSERT_TRUE(worker.ask("reserve\r\n").starts_with("RESERVED"));
    }
  }
  for (int i = 0; i < tasks; ++i) {
    ASSERT_TRUE(producer.ask("reserve-with-timeout 60\r\n").starts_with("RESERVED"));
  }
}

TEST_F(a_server, warns_a_client_whose_lease_ends_soon) {
  options_.in_memory = true;
  start();
  wire w = connect();
  EXPECT_EQ(w.ask("put-ms 0 0 1200 1\r\nx\r\n"), "INSERTED 1\r\n");
  EXPECT_EQ(w.ask("reserve\r\n"), "RESERVED 1 1\r\nx\r\n");
  EXPECT_EQ(w.ask("reserve\r\n"), "DEADLINE_SOON\r\n") << "when 0.2 s have passed";
  EXPECT_EQ(w.ask("touch 1\r\n"), "TOUCHED\r\n");
  // It is not touched again: it comes back by itself.
  wire other = connect();
  EXPECT_EQ(other.ask("reserve-with-timeout 60\r\n"), "RESERVED 1 1\r\nx\r\n");
  EXPECT_NE(other.ask("stats-job 1\r\n").find("timeouts: 1\n"), std::string::npos);
}

TEST_F(a_server, takes_no_more_puts_while_it_drains) {
  options_.in_memory = true;
  start();
  wire w = connect();
  EXPECT_EQ(w.ask("put 0 0 60 1\r\nx\r\n"), "INSERTED 1\r\n");
  server_->drain(true);
  wait_for("draining: true");
  EXPECT_EQ(w.ask("put 0 0 60 1\r\nx\r\n"), "DRAINING\r\n");
  EXPECT_EQ(w.ask("reserve\r\n"), "RESERVED 1 1\r\nx\r\n");
  server_->drain(false);
  wait_for("draining: false");
  EXPECT_EQ(w.ask("put 0 0 60 1\r\nx\r\n"), "INSERTED 2\r\n");
}

TEST_F(a_server, closes_a_connection_too_many) {
  options_.in_memory = true;
  options_.limits.connections = 3;
  start();
  std::vector<wire> some;
  for (int i = 0; i < 3; ++i) {
    some.push_back(connect());
    EXPECT_EQ(some.back().ask("list-tube-used\r\n"), "USING default\r\n");
  }
  EXPECT_EQ(connect().rest(), "");
  some.pop_back();
  for (;;) {  // until the server has seen that one was closed
    wire again = connect();
    again.send("list-tube-used\r\n");
    again.finish();
    if (again.rest() == "USING default\r\n") break;
  }
}

/// A client that asks for much and takes nothing is left behind; others are served meanwhile.
TEST_F(a_server, is_not_held_up_by_a_slow_reader) {
  options_.in_memory = true;
  start();
  wire slow = connect();
  const std::string body(60'000, 'x');
  EXPECT_EQ(slow.ask("put 0 0 60 60000\r\n" + body + "\r\n"), "INSERTED 1\r\n");
  std::string many;
  for (int i = 0; i < 5000; ++i) many += "peek 1\r\n";
  slow.send(many);  // 300 MB of answers
  wire quick = connect();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(quick.ask("list-tube-used\r\n"), "USING default\r\n");
  // When it reads at last, it gets every one.
  for (int i = 0; i < verge::test::scale(5000, 500); ++i) {
    ASSERT_EQ(slow.reply().size(), body.size() + 17);
  }
}

/// More commands than are read ahead, behind a reserve that waits: the end is noticed all the same.
TEST_F(a_server, notices_that_a_client_has_left_with_many_commands_behind_its_reserve) {
  options_.in_memory = true;
  start();
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "reserve\r\n";
  {
    wire gone = connect();
    gone.send(many);
    wire half = connect();
    half.send(many);
    wait_for("current-waiting: 2");
    // One that only says that it will send no more is told so, as often as it has asked.
    half.finish();
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(half.reply(), "TIMED_OUT\r\n");
  }
  wait_for("current-connections: 1");
  wire w = connect();
  EXPECT_EQ(w.ask("put 0 0 60 1\r\nx\r\n"), "INSERTED 1\r\n");
  EXPECT_NE(w.ask("stats-job 1\r\n").find("reserves: 0\n"), std::string::npos);
}

/// A client that asks for much and reads nothing: its commands wait when its replies have so many
/// bytes, also those that were read already.
TEST_F(a_server, makes_no_more_replies_than_a_client_takes) {
  options_.in_memory = true;
  start();
  wire slow = connect();
  const std::string body(60'000, 'x');
  for (int i = 1; i <= 100; ++i) {
    ASSERT_EQ(slow.ask("put 0 0 600 60000\r\n" + body + "\r\n"),
              "INSERTED " + std::to_string(i) + "\r\n");
  }
  // Kernels take some megabytes.
  std::string many;
  for (int i = 0; i < 500; ++i) many += "peek 1\r\n";
  for (int i = 0; i < 50; ++i) many += "reserve-batch 1000 0\r\n";
  many += "list-tube-used\r\n";
  slow.send(many);
  wire other = connect();
  while (other.ask("stats\r\n").find("cmd-peek: 0\n") != std::string::npos) {
  }
  for (int i = 0; i < 500; ++i) ASSERT_EQ(slow.reply().size(), body.size() + 17) << i;
  int reserved = 0;
  int batches = 0;
  for (; reserved < 100; ++batches) {
    const std::string line = slow.reply();
    ASSERT_TRUE(line.starts_with("RESERVED_BATCH ")) << line;
    const int n = std::stoi(line.substr(15));
    EXPECT_LE(n, 6) << "bodies of a quarter of a megabyte, and one";
    for (int i = 0; i < n; ++i) ASSERT_TRUE(slow.reply().starts_with("RESERVED "));
    reserved += n;
  }
  for (; batches < 50; ++batches) ASSERT_EQ(slow.reply(), "TIMED_OUT\r\n");
  EXPECT_EQ(slow.reply(), "USING default\r\n");
  EXPECT_LE(server_->house().most_bytes.load(), 1'500'000U);
}

/// Commands that were read and wait are counted, and there are not more of them than a megabyte.
TEST_F(a_server, reads_no_more_commands_than_it_has_room_for) {
  options_.in_memory = true;
  start();
  wire w = connect();
  const std::string body(60'000, 'x');
  std::string many = "reserve\r\n";
  for (int i = 0; i < 200; ++i) many += "put 0 0 60 60000\r\n" + body + "\r\n";
  std::thread sender([&] { w.send(many); });
  while (server_->house().bytes.load() < options_.limits.input) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(connect().ask("put 0 0 60 1\r\nx\r\n"), "INSERTED 1\r\n");
  EXPECT_EQ(w.reply(), "RESERVED 1 1\r\nx\r\n");
  for (int i = 2; i <= 201; ++i) ASSERT_EQ(w.reply(), "INSERTED " + std::to_string(i) + "\r\n");
  sender.join();
  EXPECT_LE(server_->house().most_bytes.load(), options_.limits.input + 2 * 66'000);
}

/// Many clients that begin a put and do not go on: memory is short then. Others are served, each
/// command at a time, but nothing large is taken. No command is lost.
TEST_F(a_server, serves_each_client_while_memory_is_short) {
  options_.in_memory = true;
  options_.limits.memory = 1U << 20;
  start();
  const std::string body(60'000, 'x');
  std::vector<wire> slow;
  const int clients = 40;
  for (int i = 0; i < clients; ++i) {
    slow.push_back(connect());
    slow.back().send("use slow\r\nput 0 0 60 60000\r\n" + body.substr(0, 100));
    ASSERT_EQ(slow.back().reply(), "USING slow\r\n");
  }
  while (server_->house().bytes.load() < clients * body.size()) std::this_thread::sleep_for(1ms);
  wire w = connect();
  std::string batch = "put-batch 3\r\n";
  for (int i = 0; i < 3; ++i) batch += "0 0 60000 60000\r\n" + body + "\r\n";
  std::string many = "put 0 0 60 60000\r\n" + body + "\r\n";
  for (int i = 0; i < 300; ++i) many += "peek 1\r\n" + (i % 10 == 0 ? batch : std::string());
  std::thread sender([&] { w.send(many); });
  EXPECT_EQ(w.reply(), "INSERTED 1\r\n");
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(w.reply().size(), body.size() + 17);
    if (i % 10 != 0) continue;
    ASSERT_EQ(w.reply(), "OUT_OF_MEMORY\r\n");
  }
  sender.join();
  EXPECT_LE(server_->house().most_bytes.load(), (1U << 20) + (clients + 2) * 2 * 66'000);
  for (int i = 0; i < clients; ++i) {
    slow[static_cast<std::size_t>(i)].send(body.substr(100) + "\r\n");
    EXPECT_TRUE(slow[static_cast<std::size_t>(i)].reply().starts_with("INSERTED "));
  }
  EXPECT_TRUE(w.ask(batch).starts_with("INSERTED ")) << "there is room again";
  w.close();
  slow.clear();
  while (server_->house().clients.count() != 0) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(server_->house().bytes.load(), 0U) << "all that was counted";
}

TEST_F(a_server, answers_pipelined_commands_in_their_order) {
  options_.in_memory = true;
  start();
  wire w = connect();
  const int n = verge::test::scale(20'000, 2'000);
  std::thread sender([&] {
    for (int i = 0; i < n; ++i) {
      w.send(i % 2 == 0 ? "put 0 0 60 1\r\nx\r\n" : "use t" + std::to_string(i) + "\r\n");
    }
  });
  for (int i = 0; i < n; ++i) {
    const std::string r = w.reply();
    ASSERT_EQ(r, i % 2 == 0 ? "INSERTED " + std::to_string(i / 2 + 1) + "\r\n"
                            : "USING t" + std::to_string(i) + "\r\n");
  }
  sender.join();
}

TEST_F(a_server, puts_many_at_once_and_reserves_many_at_once) {
  start();
  wire w = connect();
  EXPECT_EQ(
      w.ask("put-batch 3\r\n5 0 60000 1\r\na\r\n4 0 60000 2\r\nbb\r\n3 60000 60000 0\r\n\r\n"),
      "INSERTED 1 3\r\n");
  w.send("reserve-batch 10 0\r\n");
  EXPECT_EQ(w.reply(), "RESERVED_BATCH 2\r\n");
  EXPECT_EQ(w.reply(), "RESERVED 2 2\r\nbb\r\n");
  EXPECT_EQ(w.reply(), "RESERVED 1 1\r\na\r\n");
  EXPECT_EQ(w.ask("reserve-batch 10 0\r\n"), "TIMED_OUT\r\n");
}

TEST_F(a_server, moves_what_has_failed_too_often_to_a_tube_of_its_own) {
  start();
  wire w = connect();
  EXPECT_EQ(w.ask("put-ms 0 0 60000 1 attempts=2 dead=failed\r\nx\r\n"), "INSERTED 1\r\n");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(w.ask("reserve-with-timeout 10\r\n"), "RESERVED 1 1\r\nx\r\n");
    EXPECT_EQ(w.ask("release 1 0 0\r\n"), "RELEASED\r\n");
  }
  EXPECT_EQ(w.ask("reserve-with-timeout 0\r\n"), "TIMED_OUT\r\n");
  EXPECT_EQ(w.ask("watch failed\r\n"), "WATCHING 2\r\n");
  EXPECT_EQ(w.ask("reserve-with-timeout 0\r\n"), "RESERVED 1 1\r\nx\r\n");
}

/// What was acknowledged before stop() is there afterwards, whatever was going on.
TEST_F(a_server, ends_in_order_under_load) {
  start();
  std::atomic<int> acknowledged{0};
  std::vector<std::thread> producers;
  for (int i = 0; i < 4; ++i) {
    producers.emplace_back([&] {
      try {
        wire w = connect();
        for (;;) {
          if (!w.ask("put 0 0 60 1\r\nx\r\n").starts_with("INSERTED")) break;
          acknowledged.fetch_add(1);
        }
      } catch (const std::exception&) {
      }
    });
  }
  while (acknowledged.load() < 500) std::this_thread::sleep_for(1ms);
  server_->stop();
  for (auto& t : producers) t.join();
  server_.reset();
  const check_report r = check_rocks_store(options_.directory);
  EXPECT_EQ(r.fault_count, 0U) << r.faults[0];
  EXPECT_GE(r.tasks, static_cast<std::uint64_t>(acknowledged.load()));
}

TEST_F(a_server, says_that_the_port_is_taken) {
  options_.in_memory = true;
  start();
  server_options second = options_;
  second.listen = server_->address();
  EXPECT_THROW(task_server{second}, std::system_error);
}

}  // namespace
