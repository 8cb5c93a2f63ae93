// SPDX-License-Identifier: Apache-2.0

// Histories of bad days, checked: nothing is lost, handed out after its removal, leased twice, or
// early. With a fault in the servers, the checker has to find it.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bad_days.h"
#include "checker.h"
#include "load.h"
#include "support/database.h"

namespace {

using namespace verge::cluster_test;
using verge::server::test::database;
using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

int seconds(int otherwise) {
  const char* const given = std::getenv("VERGE_CLUSTER_SECONDS");
  return given != nullptr ? std::atoi(given) : otherwise;
}
std::uint64_t seed() {
  const char* const given = std::getenv("VERGE_CLUSTER_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
}
long long seconds_since(steady::time_point t) {
  return std::chrono::duration_cast<std::chrono::seconds>(steady::now() - t).count();
}

struct outcome {
  std::vector<std::string> faults;
  std::size_t puts{0};  ///< acknowledged, as the next
  std::size_t hand_outs{0};
  std::size_t removals{0};
};

void count(const std::vector<operation>& history, outcome& o) {
  for (const operation& x : history) {
    if (x.outcome != result::done) continue;
    o.puts += x.what == act::put ? 1 : 0;
    o.hand_outs += x.what == act::hand_out ? 1 : 0;
    o.removals += x.what == act::ack || x.what == act::cancel ? 1 : 0;
  }
}

/// Clients: most know which servers are sound, some ask any.
class crowd {
 public:
  crowd(load& of, const bad_days& days, std::uint64_t seed) {
    for (std::uint64_t i = 0; i < 8; ++i) {
      players_.emplace_back([this, &of, &days, seed, i] {
        const load::choice at = [&days, i](std::uint64_t r) {
          return i < 3 ? days.any(r) : days.sound(r);
        };
        of.play(seed + i, at, ending_);
      });
    }
  }
  crowd(const crowd&) = delete;
  crowd& operator=(const crowd&) = delete;
  ~crowd() { leave(); }
  void leave() {
    ending_.store(true);
    for (std::thread& t : players_) t.join();
    players_.clear();
  }

 private:
  std::atomic<bool> ending_{false};
  std::vector<std::thread> players_;
};

/// What is wrong so far. What is lost shows only at the end.
std::vector<std::string> faults_so_far(load& clients) {
  std::vector<std::string> found = check(clients.history());
  std::erase_if(found, [](const std::string& f) { return f.starts_with("lost"); });
  return found;
}

/// What the servers say of themselves and of the tubes: the search for a cause begins there.
void print_state(const bad_days& days, const load& clients) {
  const auto print = [](std::uint16_t port, const std::string& target) {
    const auto r = ask(port, "GET", target);
    std::printf("  at %u: %s: %s\n", port, target.c_str(), r ? r->body.c_str() : "no answer");
  };
  for (std::uint64_t i = 0; i < bad_days::servers; ++i) print(days.any(i), "/v1/cluster");
  for (const std::string& name : clients.tube_names()) print(days.sound(0), "/v1/tubes/" + name);
}

/// Until the time is over or, with a fault, until it is found.
outcome play(const std::string& fault, std::chrono::seconds length, int longest) {
  const std::uint64_t chosen = seed();
  std::mt19937_64 random(chosen);
  bad_days days(fault);
  load clients([&days](std::uint64_t r) { return days.sound(r); });
  crowd all(clients, days, chosen);
  outcome o;
  const auto begun = steady::now();
  while (o.faults.empty() && steady::now() < begun + length) {
    // Faults are looked for where they show.
    if (!fault.empty() || random() % 2 == 0) {
      days.mislead(random, clients);
    } else {
      days.happen(random, longest);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 1500));
    if (!fault.empty()) o.faults = faults_so_far(clients);
  }
  const auto found_after = seconds_since(begun);
  all.leave();
  if (o.faults.empty()) {
    clients.take_all(150);
    o.faults = check(clients.history());
  }
  count(clients.history(), o);
  std::printf("seed %llu: %lld s, %zu puts, %zu hand-outs, %zu removals; %s: %zu faults\n",
              static_cast<unsigned long long>(chosen), found_after, o.puts, o.hand_outs, o.removals,
              days.summary().c_str(), o.faults.size());
  for (std::size_t i = 0; i < o.faults.size() && i < 10; ++i) {
    std::printf("  %s\n", o.faults[i].c_str());
  }
  if (fault.empty() && !o.faults.empty()) print_state(days, clients);
  std::fflush(stdout);
  return o;
}

TEST(bad_days_of_a_cluster, leave_nothing_lost_nothing_twice_and_nothing_early) {
  if (!database::is_installed()) GTEST_SKIP() << "PostgreSQL is not installed";
  const int length = seconds(25);
  const outcome o = play("", std::chrono::seconds(length), length > 300 ? 90 : 5);
  EXPECT_TRUE(o.faults.empty()) << o.faults.size() << " faults, above";
  // Without these it would say nothing.
  EXPECT_GT(o.puts, 20U);
  EXPECT_GT(o.hand_outs, 20U);
  EXPECT_GT(o.removals, 20U);
}

/// Each fault is looked for in ./dev check cluster: VERGE_CLUSTER_FAULTS is set there.
class a_fault : public testing::TestWithParam<const char*> {};
TEST_P(a_fault, is_found) {
  if (std::getenv("VERGE_CLUSTER_FAULTS") == nullptr) GTEST_SKIP() << "only in ./dev check cluster";
  if (!database::is_installed()) GTEST_SKIP() << "PostgreSQL is not installed";
  std::string name = GetParam();
  for (char& c : name) c = c == '_' ? '-' : c;
  const outcome o = play(name, 600s, 5);
  EXPECT_FALSE(o.faults.empty());
}
INSTANTIATE_TEST_SUITE_P(faults, a_fault,
                         testing::Values("no_epoch_check", "lease_by_local_clock", "hint_trusted",
                                         "renewal_after_expiry"),
                         [](const auto& p) { return p.param; });

}  // namespace
