// SPDX-License-Identifier: Apache-2.0

// A disk that fails at one call: EIO, no space, half a write and then no space; once, or from then
// on. Whatever was acknowledged survives, and the server says what is wrong and ends, or never
// noticed because it did not matter.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "amount.h"
#include "crowd.h"
#include "process.h"

namespace verge::crash {
namespace {

using testing::IsEmpty;

constexpr int disk_failed = 74;

struct fault_result {
  bool started{false};
  bool stopped{false};  ///< it has ended because of the fault
  std::vector<std::string> problems;
};

std::size_t lines_in(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

/// One server, one failing call, one start without faults.
fault_result fail_at(std::uint64_t n, const std::string& how, std::size_t answers_each) {
  fault_result result;
  const auto complain = [&](const std::string& text) { result.problems.push_back(text); };
  const scratch place;
  const std::string data = place / "data";
  crowd clients(2, n, {.most_in_window = 6, .longest_body = 3000});
  ended end;
  {
    server_process server(data, {"--memtable", "131072"},
                          with_recorder({{"VERGE_DISK_ROOT", data},
                                         {"VERGE_DISK_FAIL", std::to_string(n) + ":" + how}}));
    result.started = server.serves();
    if (result.started) {
      clients.start(server.port(), answers_each);
      clients.join();
      for (auto& p : clients.players()) p->disconnect();
    }
    end = clients.heard_internal_error() || !server.is_running() ? server.wait() : server.stop();
  }
  result.stopped = end.status != 0;
  for (const std::string& p : clients.problems()) complain(p);
  if (result.stopped) {
    if (end.status != disk_failed)
      complain("ended with " + std::to_string(end.status) + ": " + end.error);
    if (lines_in(end.error) != 1 || !end.error.starts_with("verge: ")) {
      complain("it does not say what is wrong in one line: " + end.error);
    }
  } else if (clients.heard_internal_error()) {
    complain("INTERNAL_ERROR, but it has ended as if nothing were wrong");
  } else if (!end.error.empty()) {
    complain("it has ended well, but says " + end.error);
  }

  // Without faults: everything is there, and it starts. Before it has, no lease has ended.
  if (std::filesystem::exists(data + "/CURRENT")) {
    try {
      for (const std::string& p :
           compare(clients.ledgers(), read_copy_of(data, place / "copy"), never)) {
        complain(p);
      }
    } catch (const server::store_error& e) {
      complain(e.what());
    }
  } else if (clients.answers() != 0) {
    complain("everything is lost");
  }
  server_process again(data);
  if (!again.serves()) complain("it does not start any more: " + again.wait().error);
  return result;
}

struct fault {
  std::uint64_t call;
  std::string how;
};

/// In the long form each of the first calls, in each of the three ways; one half of them fails from
/// then on. Otherwise one way for a part of the calls.
std::vector<fault> chosen_faults() {
  constexpr std::uint64_t calls = 2000;
  static const std::vector<std::string> ways{"eio", "enospc", "short"};
  std::vector<fault> all;
  if (is_long()) {
    for (std::uint64_t n = 1; n <= calls; ++n) {
      for (std::size_t way = 0; way < ways.size(); ++way) {
        all.push_back({n, ways[way] + ((n + way) % 2 == 0 ? ":ever" : "")});
      }
    }
    return all;
  }
  // The calls of opening, of which each is another one, and some of the many alike.
  std::mt19937_64 random(seed_of(1));
  const auto add = [&](std::uint64_t n) {
    all.push_back({n, ways[random() % ways.size()] + (random() % 2 == 0 ? ":ever" : "")});
  };
  for (std::uint64_t n = 1; n <= 60; n += 2) add(n + random() % 2);
  for (std::uint64_t n = 61; n <= calls; n += 65) add(n + random() % 65);
  return all;
}

TEST(disk_fault, at_any_call_loses_nothing_that_was_acknowledged) {
  const std::vector<fault> chosen = chosen_faults();
  std::atomic<std::size_t> next{0};
  std::atomic<int> started{0};
  std::atomic<int> stopped{0};
  std::mutex lock;
  std::vector<std::string> problems;
  // Most of the time is spent waiting for a server to start or to end.
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (std::size_t at = 0; (at = next.fetch_add(1)) < chosen.size();) {
        const auto& [call, how] = chosen[at];
        const fault_result r = fail_at(call, how, call);
        started += r.started ? 1 : 0;
        stopped += r.stopped ? 1 : 0;
        std::lock_guard held(lock);
        for (const std::string& p : r.problems) {
          problems.push_back("call " + std::to_string(call) + " fails with " + how + ": " + p);
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_THAT(problems, IsEmpty());
  // Most calls matter; before the server serves and after.
  EXPECT_GT(stopped.load(), static_cast<int>(chosen.size()) / 2);
  EXPECT_GT(started.load(), 0);
  EXPECT_LT(started.load(), static_cast<int>(chosen.size()));
}

// A disk that cannot be read when the server starts: it says so in a line, and ends. When the disk
// works again everything is there.
TEST(disk_fault, while_a_server_starts_and_reads_is_told) {
  const scratch place;
  const std::string data = place / "data";
  crowd clients(2, 7, {.most_in_window = 6, .longest_body = 3000});
  {
    server_process server(data, {"--memtable", "131072"});
    ASSERT_TRUE(server.serves());
    clients.start(server.port(), 400);
    clients.join();
    server.kill();  // so that there is a log to be read
  }
  int failed = 0;
  for (int n = 1;; n += n < 6 || is_long() ? 1 : n) {
    std::filesystem::remove_all(place / "copy");
    std::filesystem::copy(data, place / "copy", std::filesystem::copy_options::recursive);
    server_process server(place / "copy", {},
                          with_recorder({{"VERGE_DISK_ROOT", place / "copy"},
                                         {"VERGE_DISK_FAIL_READ", std::to_string(n)}}));
    if (server.serves()) break;
    const ended end = server.wait();
    ++failed;
    EXPECT_EQ(end.status, disk_failed) << "read " << n << ": " << end.error;
    EXPECT_TRUE(lines_in(end.error) == 1 && end.error.starts_with("verge: ")) << end.error;
  }
  EXPECT_GT(failed, 2) << "the name of the manifest, the manifest, a log at least";
  EXPECT_THAT(compare(clients.ledgers(), read_copy_of(data, place / "copy"), never), IsEmpty());
}

/// The answers that are left on a connection, up to its end.
std::vector<std::string> rest_of(connection& c) {
  std::vector<std::string> lines;
  while (auto line = c.line()) lines.push_back(std::move(*line));
  return lines;
}

// Clients that wait, one that holds leases, and one with many commands under way: when the disk has
// failed all of them hear so, none is handed what the others give back, and the server ends.
TEST(disk_fault, is_told_to_all_waiting_clients_and_nothing_else_is) {
  for (int i = 0; i < amount(5, 50); ++i) {
    const scratch place;
    const std::string data = place / "data";
    server_process server(
        data, {}, with_recorder({{"VERGE_DISK_ROOT", data}, {"VERGE_DISK_FAIL", "150:eio:ever"}}));
    ASSERT_TRUE(server.serves());
    connection holder(server.port());
    constexpr int tasks = 20;
    for (int n = 0; n < tasks; ++n) {
      holder.send("put 1 0 600 4\r\nwork\r\nreserve\r\n");
      ASSERT_EQ(holder.line().value_or("").substr(0, 9), "INSERTED ");
      ASSERT_EQ(holder.line().value_or("").substr(0, 9), "RESERVED ");
      ASSERT_EQ(holder.body(4), "work");
    }
    std::vector<std::unique_ptr<connection>> waiting;
    for (int n = 0; n < 10; ++n) {
      waiting.push_back(std::make_unique<connection>(server.port()));
      // What comes behind a reserve that waits is answered as well.
      waiting.back()->send(n % 2 == 0 ? "reserve\r\n" : "reserve\r\nlist-tube-used\r\nreserve\r\n");
    }
    connection producer(server.port());
    ASSERT_EQ(producer.ask("use elsewhere"), "USING elsewhere");
    while (value_of(producer.show("stats"), "current-waiting") != "10") {
    }
    std::string puts;
    constexpr int put_count = 200;
    for (int n = 0; n < put_count; ++n) puts += "put 1 0 600 4\r\nwork\r\n";
    bool failed = false;
    while (!failed && producer.is_open()) {
      producer.send("put 1 0 600 4\r\nwork\r\n");
      failed = producer.line() == "INTERNAL_ERROR";
      if (failed) producer.send(puts);
    }
    EXPECT_TRUE(failed);
    EXPECT_THAT(rest_of(producer), testing::Each("INTERNAL_ERROR"));
    EXPECT_THAT(rest_of(holder), IsEmpty());
    for (std::size_t n = 0; n < waiting.size(); ++n) {
      EXPECT_EQ(rest_of(*waiting[n]),
                std::vector<std::string>(n % 2 == 0 ? 1 : 3, "INTERNAL_ERROR"));
    }
    const ended end = server.wait();
    EXPECT_EQ(end.status, disk_failed);
    EXPECT_EQ(lines_in(end.error), 1U) << end.error;
  }
}

}  // namespace
}  // namespace verge::crash
