// SPDX-License-Identifier: Apache-2.0

// A storm: tasks that all fall due in one second, and workers that take them. None is lost, early
// or handed out twice, the server's memory stays small, and another tube is served meanwhile. The
// clock is set to that second when all have been put, so that no test waits for it.
//
// Ten million with VERGE_CRASH=long, as ./dev check storm has it; VERGE_STORM_TASKS=N.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "amount.h"
#include "client.h"
#include "player.h"
#include "process.h"
#include "wall_clock.h"

namespace verge::crash {
namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

constexpr std::int64_t hour = 3'600'000 * millisecond;
constexpr std::size_t at_once = 1000;

std::size_t tasks_wanted() {
  const char* const set = std::getenv("VERGE_STORM_TASKS");
  return set != nullptr ? std::strtoull(set, nullptr, 10) : amount<std::size_t>(50'000, 10'000'000);
}

/// The most memory that a process has had, in MB.
std::uint64_t most_memory(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtoull(line.c_str() + 6, nullptr, 10) / 1024;
  }
  return 0;
}

double seconds_since(steady::time_point begin) {
  return std::chrono::duration<double>(steady::now() - begin).count();
}

struct storm {
  explicit storm(std::size_t n) : tasks(n), after(n + 5'000'000), seen(n + 5'000'000) {}

  std::size_t tasks;
  std::uint16_t port{0};
  std::int64_t due{0};               ///< the second in which all are due, by the server's clock
  std::vector<std::uint16_t> after;  ///< by id: milliseconds after that
  std::vector<std::atomic<std::uint8_t>> seen;  ///< by id: how often it was handed out
  std::atomic<std::size_t> put{0}, taken{0}, early{0}, twice{0}, wrong{0};
};

void produce(storm& s, const wall_clock& clock, std::size_t count) {
  connection c(s.port);
  c.ask("use storm");
  std::uint32_t random = static_cast<std::uint32_t>(count);
  std::vector<std::uint16_t> chosen;
  for (std::size_t done = 0; done < count; done += chosen.size()) {
    chosen.resize(std::min(at_once, count - done));
    std::string bytes = "put-batch " + std::to_string(chosen.size()) + "\r\n";
    const std::int64_t left = (s.due - clock.now()) / millisecond + 1;
    for (std::uint16_t& after : chosen) {
      random = random * 1664525U + 1013904223U;
      after = static_cast<std::uint16_t>((random >> 8) % 1000);
      bytes += "0 " + std::to_string(left + after) + " 3600000 4\r\nwork\r\n";
    }
    c.send(bytes);
    const std::string answer = c.line().value_or("");
    if (!answer.starts_with("INSERTED ")) {
      s.wrong.fetch_add(chosen.size());
      return;
    }
    const std::uint64_t first = std::stoull(answer.substr(9));
    for (std::size_t i = 0; i < chosen.size(); ++i) s.after.at(first + i) = chosen[i];
    s.put.fetch_add(chosen.size());
  }
}

void work(storm& s, const wall_clock& clock) {
  connection c(s.port);
  c.ask("watch storm");
  c.ask("ignore default");
  while (s.taken.load() < s.tasks && c.is_open()) {
    const std::string head = c.ask("reserve-batch 1000 1000").value_or("");
    if (!head.starts_with("RESERVED_BATCH ")) continue;
    const std::size_t n = std::stoul(head.substr(15));
    std::string bytes;
    for (std::size_t i = 0; i < n; ++i) {
      const std::string line = c.line().value_or("");
      const std::int64_t now = clock.now();
      const std::uint64_t id = std::stoull(line.substr(9));
      if (c.body(4) != "work") s.wrong.fetch_add(1);
      if (now < s.due + s.after.at(id) * millisecond) s.early.fetch_add(1);
      if (s.seen.at(id).fetch_add(1) != 0) s.twice.fetch_add(1);
      bytes += "delete " + std::to_string(id) + "\r\n";
    }
    c.send(bytes);
    for (std::size_t i = 0; i < n; ++i) {
      if (c.line() != "DELETED") s.wrong.fetch_add(1);
    }
    s.taken.fetch_add(n);
  }
}

/// In another tube, one task after the other: how many milliseconds each was late.
std::vector<std::int64_t> go_on_as_usual(const storm& s, const wall_clock& clock) {
  std::vector<std::int64_t> late;
  connection c(s.port);
  c.ask("use calm");
  c.ask("watch calm");
  c.ask("ignore default");
  while (s.taken.load() < s.tasks) {
    const std::int64_t due = clock.now() + 50 * millisecond;
    c.send("put-ms 0 50 60000 4\r\ncalm\r\n");
    if (!c.line()) break;
    const auto line = c.ask("reserve-with-timeout 600").value_or("");
    if (!line.starts_with("RESERVED ") || c.body(4) != "calm") break;
    late.push_back((clock.now() - due) / millisecond);
    if (c.ask("delete " + line.substr(9, line.find(' ', 9) - 9)) != "DELETED") break;
  }
  return late;
}

TEST(storm, of_tasks_that_are_due_in_one_second_goes_through) {
  storm s(tasks_wanted());
  const bool is_large = s.tasks > 1'000'000;
  const scratch place(is_large ? scratch::on::disk : scratch::on::memory);
  wall_clock clock(place);
  // The smallest window that there is, so that a small storm is larger than it, too.
  server_process server(
      place / "data",
      is_large ? std::vector<std::string>{} : std::vector<std::string>{"--window", "10000"},
      clock.variables());
  ASSERT_TRUE(server.serves()) << server.wait().error;
  s.port = server.port();
  s.due = clock.now() + hour;

  auto begin = steady::now();
  std::vector<std::thread> threads;
  constexpr std::size_t producers = 4;
  for (std::size_t i = 0; i < producers; ++i) {
    const std::size_t part = s.tasks * (i + 1) / producers - s.tasks * i / producers;
    threads.emplace_back([&s, &clock, part] { produce(s, clock, part); });
  }
  for (std::thread& t : threads) t.join();
  threads.clear();
  ASSERT_EQ(s.put.load(), s.tasks);
  ASSERT_LT(clock.now(), s.due) << "an hour was not enough";
  std::printf("%zu tasks were put in %.1f s\n", s.tasks, seconds_since(begin));

  constexpr int workers = 4;
  for (int i = 0; i < workers; ++i) threads.emplace_back([&] { work(s, clock); });
  std::vector<std::int64_t> late;
  threads.emplace_back([&] { late = go_on_as_usual(s, clock); });
  begin = steady::now();
  clock.step(s.due - clock.now() - 200 * millisecond);
  for (std::thread& t : threads) t.join();
  const std::uint64_t memory = most_memory(server.pid());
  std::sort(late.begin(), late.end());
  std::printf(
      "drained in %.1f s by %d workers; %zu early, %zu twice; %llu MB of memory at most\n"
      "meanwhile %zu tasks of another tube, late by %lld ms in the middle and %lld ms at most\n",
      seconds_since(begin), workers, s.early.load(), s.twice.load(),
      static_cast<unsigned long long>(memory), late.size(),
      static_cast<long long>(late.empty() ? 0 : late[late.size() / 2]),
      static_cast<long long>(late.empty() ? 0 : late.back()));
  EXPECT_EQ(s.early.load(), 0U);
  EXPECT_EQ(s.twice.load(), 0U);
  EXPECT_EQ(s.wrong.load(), 0U);
  EXPECT_EQ(static_cast<std::size_t>(std::count_if(s.seen.begin(), s.seen.end(),
                                                   [](const auto& n) { return n.load() != 0; })),
            s.tasks)
      << "the others are lost";
  EXPECT_LT(memory, is_large ? 1000U : 250U);
  // Each was put while the storm was on, and came before the next was put.
  EXPECT_GT(late.size(), 2U);
  EXPECT_EQ(server.stop().status, 0);
  const ended check = run({tool(), "check", place / "data"});
  EXPECT_EQ(check.status, 0) << check.out << check.error;
}

}  // namespace
}  // namespace verge::crash
