// SPDX-License-Identifier: Apache-2.0

// Days that are bad without a crash: a million tasks cancelled, a worker that dies with a thousand
// leases, thousands of idle connections, the largest bodies, and garbage on the wire. The server
// answers all of it, and `verge check` finds no fault afterwards.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <random>
#include <thread>

#include "amount.h"
#include "client.h"
#include "process.h"

namespace verge::crash {
namespace {

using namespace std::chrono_literals;

class crowded : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(server_->serves()) << server_->wait().error; }

  void TearDown() override {
    const ended end = server_->stop();
    EXPECT_EQ(end.status, 0);
    EXPECT_EQ(end.error, "");
    const ended check = run({tool(), "check", place_ / "data"});
    EXPECT_EQ(check.status, 0) << check.out << check.error;
  }

  std::string count(connection& c, const std::string& state) {
    return value_of(c.show("stats"), "current-jobs-" + state);
  }

  scratch place_;
  std::unique_ptr<server_process> server_ = std::make_unique<server_process>(
      place_ / "data",
      std::vector<std::string>{"--memtable", "4194304", "--max-connections", "20000"});
};

/// The memory of a process, in bytes.
std::uint64_t memory_of(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
  }
  return 0;
}

TEST_F(crowded, delayed_tasks_are_all_cancelled) {
  const int tasks = amount(30'000, 1'000'000);
  constexpr int at_once = 500;
  connection c(server_->port());
  ASSERT_EQ(c.ask("use orders"), "USING orders");
  const auto in_parts = [&](const auto& line, const std::string& answer) {
    int wrong = 0;
    for (int from = 0; from < tasks; from += at_once) {
      std::string lines;
      for (int i = from; i < std::min(tasks, from + at_once); ++i) lines += line(i);
      c.send(lines);
      for (int i = from; i < std::min(tasks, from + at_once); ++i) {
        wrong += c.line().value_or("").starts_with(answer) ? 0 : 1;
      }
    }
    return wrong;
  };
  const auto put = [](int i) {
    return "put-key order" + std::to_string(i) +
           " refuse 10 1800000 60000 20\r\nan order that waits.\r\n";
  };
  ASSERT_EQ(in_parts(put, "INSERTED "), 0);
  EXPECT_EQ(count(c, "delayed"), std::to_string(tasks));
  EXPECT_EQ(
      in_parts([](int i) { return "cancel order" + std::to_string(i) + "\r\n"; }, "CANCELLED"), 0);
  EXPECT_EQ(count(c, "delayed"), "0");
  EXPECT_EQ(
      in_parts([](int i) { return "cancel order" + std::to_string(i) + "\r\n"; }, "NOT_FOUND"), 0);
  EXPECT_EQ(c.ask("reserve-with-timeout 0"), "TIMED_OUT");
}

TEST_F(crowded, a_worker_that_dies_with_a_thousand_leases_leaves_them_to_the_next) {
  constexpr int tasks = 1000;
  connection c(server_->port());
  std::string puts = "put-batch " + std::to_string(tasks) + "\r\n";
  for (int i = 0; i < tasks; ++i) puts += "5 0 3600000 4\r\nwork\r\n";
  c.send(puts);
  ASSERT_EQ(c.line().value_or("").substr(0, 9), "INSERTED ");
  const auto reserve_all = [&](connection& from) {
    from.send("reserve-batch 1000 0\r\n");
    if (from.line() != "RESERVED_BATCH " + std::to_string(tasks)) return 0;
    int got = 0;
    for (int i = 0; i < tasks; ++i) {
      const auto line = from.line();
      got += line && line->starts_with("RESERVED ") && from.body(4) == "work" ? 1 : 0;
    }
    return got;
  };
  {
    connection worker(server_->port());
    ASSERT_EQ(reserve_all(worker), tasks);
    EXPECT_EQ(count(c, "reserved"), std::to_string(tasks));
  }
  while (count(c, "ready") != std::to_string(tasks)) std::this_thread::sleep_for(1ms);
  connection next(server_->port());
  EXPECT_EQ(reserve_all(next), tasks);
  // And one that dies with the server.
  server_->kill();
  server_ = std::make_unique<server_process>(place_ / "data");
  ASSERT_TRUE(server_->serves());
  connection last(server_->port());
  EXPECT_EQ(reserve_all(last), tasks);
}

TEST_F(crowded, connections_that_say_nothing_are_in_nobodys_way) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  const auto possible = static_cast<std::size_t>(limit.rlim_cur) - 200;
  const std::size_t connections = std::min<std::size_t>(10'000, possible);
  if (connections < 10'000) std::printf("%zu connections: ulimit -n allows no more\n", connections);
  const std::uint64_t before = memory_of(server_->pid());
  std::vector<std::unique_ptr<connection>> idle;
  for (std::size_t i = 0; i < connections; ++i) {
    idle.push_back(std::make_unique<connection>(server_->port()));
    ASSERT_TRUE(idle.back()->is_open()) << i;
  }
  connection c(server_->port());
  while (value_of(c.show("stats"), "current-connections") != std::to_string(connections + 1)) {
    std::this_thread::sleep_for(1ms);
  }
  const std::uint64_t each = (memory_of(server_->pid()) - before) / connections;
  std::printf("%zu connections, %llu bytes of memory for each\n", connections,
              static_cast<unsigned long long>(each));
  EXPECT_LT(each, 12'000U);
  c.send("put 1 0 60 4\r\nwork\r\n");
  EXPECT_EQ(c.line().value_or("").substr(0, 9), "INSERTED ");
  EXPECT_EQ(idle.back()->ask("reserve").value_or("").substr(0, 9), "RESERVED ");
  idle.clear();
  while (value_of(c.show("stats"), "current-connections") != "1") std::this_thread::sleep_for(1ms);
  EXPECT_EQ(count(c, "ready"), "1");
}

TEST_F(crowded, bodies_of_the_maximum_size_come_back_as_they_were) {
  constexpr std::size_t most = 65'535;
  const int tasks = amount(40, 500);
  std::mt19937_64 random(seed_of(1));
  std::vector<std::string> bodies;
  connection c(server_->port());
  for (int i = 0; i < tasks; ++i) {
    std::string body(most, ' ');
    for (char& b : body) b = static_cast<char>(random());
    c.send("put 0 0 60 65535\r\n" + body + "\r\n");
    ASSERT_EQ(c.line().value_or("").substr(0, 9), "INSERTED ");
    bodies.push_back(std::move(body));
  }
  c.send("put 0 0 60 65536\r\n" + std::string(most + 1, 'x') + "\r\n");
  EXPECT_EQ(c.line(), "JOB_TOO_BIG");
  server_->kill();
  server_ = std::make_unique<server_process>(place_ / "data");
  connection again(server_->port());
  for (const std::string& body : bodies) {
    const auto line = again.ask("reserve-with-timeout 0");
    ASSERT_EQ(line.value_or("").substr(0, 9), "RESERVED ");
    EXPECT_TRUE(again.body(most) == body) << *line;
  }
}

/// A line, or bytes, that may be anything: near to what the server knows, mostly.
std::string garbage(std::mt19937_64& random) {
  static const char* const words[] = {"put ",
                                      "put-ms ",
                                      "put-key ",
                                      "put-batch ",
                                      "reserve",
                                      "reserve-with-timeout ",
                                      "reserve-job ",
                                      "reserve-batch ",
                                      "delete ",
                                      "release ",
                                      "bury ",
                                      "kick ",
                                      "kick-job ",
                                      "touch ",
                                      "peek ",
                                      "peek-ready",
                                      "peek-delayed",
                                      "peek-buried",
                                      "cancel ",
                                      "reschedule ",
                                      "use ",
                                      "watch ",
                                      "ignore ",
                                      "stats",
                                      "stats-job ",
                                      "stats-tube ",
                                      "list-tubes",
                                      "list-tube-used",
                                      "list-tubes-watched",
                                      "pause-tube ",
                                      "PUT ",
                                      "",
                                      " ",
                                      "quit "};
  const auto number = [&]() -> std::string {
    switch (random() % 8) {
      case 0:
        return "-1";
      case 1:
        return "18446744073709551616";
      case 2:
        return "4294967296";
      case 3:
        return "x";
      case 4:
        return "";
      default:
        return std::to_string(random() % 30);
    }
  };
  std::string line = words[random() % std::size(words)];
  if (line == "quit ") return line + "now\r\n";
  // A reserve that waits forever would keep the rest from being read.
  if (line == "reserve") line = "reserve-with-timeout 0";
  const std::size_t arguments = random() % 6;
  for (std::size_t i = 0; i < arguments; ++i) {
    line += random() % 4 == 0 ? "key" + std::to_string(random() % 5) : number();
    if (random() % 8 != 0) line += " ";
  }
  if (line.starts_with("reserve-with-timeout ") || line.starts_with("reserve-batch ")) {
    line = line.substr(0, line.find(' ')) + (line.starts_with("reserve-batch") ? " 3 0" : " 0");
  }
  // Nor are tubes paused for a lifetime, which would do no harm but hide what comes.
  if (line.starts_with("pause-tube ")) line = "pause-tube default 0";
  switch (random() % 10) {
    case 0:  // Bytes of any kind.
      for (std::size_t i = random() % 40; i > 0; --i) line.push_back(static_cast<char>(random()));
      break;
    case 1:
      line.append(random() % 500, 'a');
      break;
    case 2:
      line += "\n";
      break;
    case 3:
      line += "\r";
      break;
    default:
      break;
  }
  if (line.starts_with("put ") && random() % 2 == 0) {
    const std::string body(random() % 20, 'b');
    return "put 1 0 1 " + std::to_string(body.size()) + "\r\n" + body + "\r\n";
  }
  return line + "\r\n";
}

TEST_F(crowded, garbage_on_the_wire_is_answered_or_ignored) {
  const int rounds = amount(100, 5'000);
  constexpr int lines = 200;
  std::mt19937_64 random(seed_of(1));
  for (int i = 0; i < rounds; ++i) {
    connection c(server_->port());
    std::string all;
    for (int j = 0; j < lines; ++j) all += garbage(random);
    std::thread sending([&] { c.send(all); });
    // Half of them read some answers, the others leave at once, with commands under way.
    for (std::uint64_t j = random() % 2 * 20; j > 0 && c.line(); --j) {
    }
    sending.join();
    ASSERT_TRUE(server_->is_running())
        << "VERGE_CRASH_SEED=" << seed_of(1) << ", round " << i << ": " << server_->wait().error;
  }
  // It serves as before.
  connection c(server_->port());
  ASSERT_EQ(c.ask("use afterwards"), "USING afterwards");
  c.send("put 0 0 60 4\r\nwork\r\n");
  EXPECT_EQ(c.line().value_or("").substr(0, 9), "INSERTED ");
  ASSERT_EQ(c.ask("watch afterwards"), "WATCHING 2");
  ASSERT_EQ(c.ask("ignore default"), "WATCHING 1");
  EXPECT_EQ(c.ask("reserve-with-timeout 60").value_or("").substr(0, 9), "RESERVED ");
}

}  // namespace
}  // namespace verge::crash
