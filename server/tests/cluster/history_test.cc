// Three servers, one database, and bad days: kill -9, SIGSTOP, connections that are held back and
// cut, a database that is restarted. Clients write down what they see, and it is checked. With a
// fault in the servers, the checker has to find it.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "checker.h"
#include "load.h"
#include "nodes.h"
#include "proxy.h"
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

class bad_days {
 public:
  explicit bad_days(std::string fault, int lease = 1500) {
    for (int i = 0; i < 3; ++i) {
      proxies_.push_back(std::make_unique<proxy>(base_.directory()));
      nodes_.push_back(
          std::make_unique<node>(database::url_at(proxies_.back()->directory()), lease, fault));
      if (!nodes_.back()->start()) throw std::runtime_error("a server does not start");
      ports_[static_cast<std::size_t>(i)].store(nodes_.back()->port());
    }
  }

  std::uint16_t port(std::uint64_t any) { return ports_[any % 3].load(); }

  /// Something bad, for some seconds, at one server or at the database.
  void happen(std::mt19937_64& random, int longest) {
    const std::size_t which = random() % 3;
    node& n = *nodes_[which];
    proxy& p = *proxies_[which];
    const auto some =
        std::chrono::milliseconds(200 + random() % (static_cast<std::uint64_t>(longest) * 1000));
    switch (random() % 8) {
      case 0:
      case 1:
        n.kill();
        ++kills;
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 2500));
        start(which);
        break;
      case 2:
      case 3:
        ++stops;
        n.stop(true);
        std::this_thread::sleep_for(some);
        n.stop(false);
        break;
      case 4:
      case 5:
        ++holds;
        p.hold(true);
        std::this_thread::sleep_for(some);
        p.hold(false);
        break;
      case 6:
        ++cuts;
        p.cut();
        break;
      default:
        if (random() % 3 == 0) {
          ++restarts;
          if (random() % 2 == 0) {
            base_.stop();
          } else {
            base_.crash();
          }
          base_.start();
        } else {
          ++ends;
          n.end();
          start(which);
        }
    }
  }

  /// What a fault shows in: a server is away for longer than its leases last, and comes back while
  /// clients still wait for it.
  void be_away(std::mt19937_64& random) {
    const std::size_t which = random() % 3;
    const auto away = std::chrono::milliseconds(2200 + random() % 2500);
    switch (random() % 4) {
      case 0:
      case 1:
        ++stops;
        nodes_[which]->stop(true);
        std::this_thread::sleep_for(away);
        nodes_[which]->stop(false);
        break;
      case 2:
        ++holds;
        proxies_[which]->hold(true);
        std::this_thread::sleep_for(away);
        proxies_[which]->hold(false);
        break;
      default:
        ++ends;
        nodes_[which]->end();
        start(which);
    }
  }

  int kills{0}, stops{0}, holds{0}, cuts{0}, restarts{0}, ends{0};

 private:
  /// A server does not start while its database does not answer.
  void start(std::size_t which) {
    while (!nodes_[which]->start()) std::this_thread::sleep_for(100ms);
    ports_[which].store(nodes_[which]->port());
  }

  database base_;
  std::vector<std::unique_ptr<proxy>> proxies_;
  std::vector<std::unique_ptr<node>> nodes_;
  std::atomic<std::uint16_t> ports_[3]{};
};

long long seconds_since(steady::time_point t) {
  return std::chrono::duration_cast<std::chrono::seconds>(steady::now() - t).count();
}

struct outcome {
  std::vector<std::string> faults;
  std::size_t operations{0};
};

/// Until the time is over or, with a fault, until it is found.
outcome play(const std::string& fault, std::chrono::seconds length, int longest) {
  const std::uint64_t chosen = seed();
  std::mt19937_64 random(chosen);
  bad_days days(fault);
  load clients([&](std::uint64_t any) { return days.port(any); });
  std::atomic<bool> ending{false};
  std::vector<std::thread> players;
  for (std::uint64_t i = 0; i < 8; ++i) {
    players.emplace_back([&, i] { clients.play(chosen + i, ending); });
  }
  outcome o;
  const auto begun = steady::now();
  const auto end = begun + length;
  while (steady::now() < end) {
    if (fault.empty()) {
      days.happen(random, longest);
    } else {
      days.be_away(random);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 1500));
    if (fault.empty()) continue;
    o.faults = check(clients.history());
    std::erase_if(o.faults, [](const std::string& f) { return f.starts_with("lost"); });
    if (!o.faults.empty()) std::printf("found after %lld s\n", seconds_since(begun));
    if (!o.faults.empty()) break;
  }
  ending.store(true);
  for (std::thread& t : players) t.join();
  if (o.faults.empty()) {
    clients.take_all(150);
    o.faults = check(clients.history());
  }
  o.operations = clients.size();
  std::printf(
      "seed %llu: %zu operations, %d kills, %d stops, %d holds, %d cuts, %d ends, %d "
      "restarts of the database, %zu faults\n",
      static_cast<unsigned long long>(chosen), o.operations, days.kills, days.stops, days.holds,
      days.cuts, days.ends, days.restarts, o.faults.size());
  for (std::size_t i = 0; i < o.faults.size() && i < 10; ++i) {
    std::printf("  %s\n", o.faults[i].c_str());
  }
  std::fflush(stdout);
  return o;
}

TEST(bad_days_of_a_cluster, leave_nothing_lost_nothing_twice_and_nothing_early) {
  if (!database::is_installed()) GTEST_SKIP() << "PostgreSQL is not installed";
  const int length = seconds(25);
  const outcome o = play("", std::chrono::seconds(length), length > 300 ? 90 : 5);
  EXPECT_TRUE(o.faults.empty()) << o.faults.size() << " faults, above";
  EXPECT_GT(o.operations, 20U);
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
