// SPDX-License-Identifier: Apache-2.0

// kill -9 at random moments under load, again and again on the same directory: what was
// acknowledged is there, nothing that was acknowledged away is back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "amount.h"
#include "crowd.h"
#include "process.h"

namespace verge::crash {
namespace {

using namespace std::chrono_literals;
using testing::IsEmpty;

constexpr int players = 4;

/// What a started server says of itself against what was on disk before it was started.
std::vector<std::string> compare_with_server(const snapshot& found, std::uint16_t port) {
  std::vector<std::string> wrong;
  connection c(port);
  // All questions at once, from another thread, so that neither waits for the other.
  std::string questions;
  for (const auto& [id, f] : found.tasks) {
    questions += "stats-job " + std::to_string(id) + "\r\npeek " + std::to_string(id) + "\r\n";
  }
  std::thread asking([&] { c.send(questions); });
  std::map<std::string, std::map<std::string, int>> counts;
  for (const auto& [id, f] : found.tasks) {
    const server::task& t = f.stored.fields;
    const std::string name = "task " + std::to_string(id);
    const std::string shown = c.shown();
    const std::string state = value_of(shown, "state");
    ++counts[f.tube][state];
    // Leases end with their connections, and delays with time.
    const bool agrees =
        state == server::name_of(t.state) ||
        (state == "ready" && (t.state == task_state::reserved ||
                              (t.state == task_state::delayed && t.due <= now() + 2'000'000'000)));
    if (!agrees) wrong.push_back(name + " is " + state + ", was " + server::name_of(t.state));
    if (value_of(shown, "pri") != std::to_string(t.priority) ||
        value_of(shown, "reserves") != std::to_string(t.reserves) ||
        value_of(shown, "tube") != f.tube) {
      wrong.push_back(name + " is shown wrongly: " + shown);
    }
    const auto first = c.line();
    if (first != "FOUND " + std::to_string(id) + " " + std::to_string(f.body.size())) {
      wrong.push_back(name + " cannot be seen: " + first.value_or("nothing"));
    } else if (c.body(f.body.size()) != f.body) {
      wrong.push_back(name + " has a wrong body");
    }
  }
  asking.join();
  for (auto& [tube, states] : counts) {
    const std::string shown = c.show("stats-tube " + tube);
    const auto count = [&](const std::string& state) {
      const std::string text = value_of(shown, "current-jobs-" + state);
      return text.empty() ? -1 : std::stoi(text);
    };
    // A delayed task may have become ready between the two looks.
    if (count("buried") != states["buried"] || count("reserved") != 0 ||
        count("delayed") > states["delayed"] ||
        count("ready") + count("delayed") != states["ready"] + states["delayed"]) {
      wrong.push_back(tube + " counts wrongly: " + shown);
    }
  }
  return wrong;
}

struct kill_result {
  int kills{0};
  std::size_t answers{0};
  std::vector<std::string> problems;
};

/// Kills a server `kills` times, and stops at the first problem.
kill_result kill_often(std::uint64_t seed, int kills, const std::vector<std::string>& arguments,
                       const environment& variables) {
  std::mt19937_64 random(seed);
  kill_result result;
  const scratch place;
  const std::string data = place / "data";
  // Few tasks, so that there can be many kills.
  crowd clients(players, seed, {.most_tasks = 80});
  snapshot found;  // after the last kill
  for (int i = 0; i < kills && result.problems.empty(); ++i) {
    server_process server(data, arguments, variables);
    if (!server.serves()) {
      result.problems.push_back("it does not start: " + server.wait().error);
      break;
    }
    if (i != 0) {
      result.problems = compare_with_server(found, server.port());
      clients.adopt(found);
    }
    clients.start(server.port());
    // Most of them soon after the start, some after more than one file has been written.
    const std::size_t enough = random() % (random() % 8 == 0 ? 1500 : 150);
    while (clients.answers_since_start() < enough && clients.all_play()) {
      std::this_thread::sleep_for(200us);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    if (!server.is_running()) result.problems.push_back("it has ended: " + server.wait().error);
    server.kill();
    clients.join();
    ++result.kills;
    result.answers = clients.answers();
    for (std::string& p : clients.problems()) result.problems.push_back(std::move(p));
    try {
      found = look_at_directory(data);
      for (std::string& p : compare(clients.ledgers(), found, never)) {
        result.problems.push_back(std::move(p));
      }
    } catch (const server::store_error& e) {
      result.problems.emplace_back(e.what());
    }
  }
  return result;
}

TEST(kill, leaves_everything_that_was_acknowledged) {
  const std::uint64_t first = seed_of(1);
  for (std::uint64_t seed = first; seed < first + amount(5U, 50U); ++seed) {
    // A small memtable: logs are replaced, files are written and merged while it is killed.
    const auto r = kill_often(seed, amount(40, 60), {"--memtable", "131072"}, {});
    EXPECT_THAT(r.problems, IsEmpty()) << "VERGE_CRASH_SEED=" << seed << ", kill " << r.kills
                                       << ", after " << r.answers << " answers";
    EXPECT_GT(r.answers, 0U);
  }
}

TEST(kill, takes_nothing_that_was_only_written_either) {
  const std::uint64_t seed = seed_of(1000);
  const auto r =
      kill_often(seed, amount(100, 1000), {"--durability", "written", "--memtable", "131072"}, {});
  EXPECT_THAT(r.problems, IsEmpty()) << "VERGE_CRASH_SEED=" << seed << ", kill " << r.kills;
}

// The test can fail: a write that reaches the kernel one write later than the server believes.
TEST(kill, is_noticed_if_replies_leave_before_the_write) {
  const scratch place;
  const auto r = kill_often(seed_of(2000), 20, {},
                            with_recorder({{"VERGE_DISK_ROOT", "/"}, {"VERGE_DISK_LIE", "late"}}));
  EXPECT_FALSE(r.problems.empty())
      << "after " << r.kills << " kills and " << r.answers << " answers nothing was missed";
}

}  // namespace
}  // namespace verge::crash
