// SPDX-License-Identifier: Apache-2.0

// How long the tasks of a server that ends are out of reach: from the signal until another server
// has all shards, and has executed a put for each of them. The figures of docs/cluster.md are
// printed here.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "cluster/tube_hash.h"
#include "nodes.h"
#include "support/database.h"

#include <support/output_of.h>

namespace {

using namespace verge::cluster_test;
using verge::server::cluster::shard_of_tube;
using verge::server::test::database;
using namespace std::chrono_literals;
using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;
using verge::test::output_of;
using steady = std::chrono::steady_clock;

constexpr std::uint32_t shards = 8;

bool put(std::uint16_t port, const std::string& tube) {
  const auto r = ask(port, "POST", "/v1/tubes/" + tube + "/tasks", R"({"body": "x"})", 60s);
  return r && r->status < 300;
}

/// A tube in each shard.
std::vector<std::string> one_tube_each() {
  std::vector<std::string> all(shards);
  for (int i = 0, left = shards; left > 0; ++i) {
    const std::string name = "tube" + std::to_string(i);
    std::string& at = all[shard_of_tube(name, shards)];
    if (!at.empty()) continue;
    at = name;
    --left;
  }
  return all;
}

/// Until a put for each of the tubes was executed, asked for there.
void wait_until_all_are_served(std::uint16_t port) {
  std::vector<std::thread> clients;
  for (const std::string& tube : one_tube_each()) {
    clients.emplace_back([port, tube] {
      while (!put(port, tube)) std::this_thread::sleep_for(5ms);
    });
  }
  for (std::thread& t : clients) t.join();
}

/// Until all shards have an owner, and these are so many servers. False if that takes too long:
/// where shards are placed is chance, and one of two may have none.
bool have_owners(const database& base, int servers, std::chrono::seconds patience) {
  verge::server::postgres::link to(base.options());
  const auto end = steady::now() + patience;
  while (steady::now() < end) {
    const auto found =
        to.run_here({{"SELECT count(DISTINCT owner), count(*) FROM verge_shard "
                      "WHERE owner <> '' AND expires > now()",
                      {}}});
    if (found[0].number(0, 0) == servers && found[0].number(0, 1) == shards) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

/// One of two servers gets the signal; the longest of so many times.
milliseconds out_of_reach(int signal, int lease, int rounds) {
  database base;
  std::vector<milliseconds> all;
  while (all.size() < static_cast<std::size_t>(rounds)) {
    node first(base.url(), lease, "");
    node second(base.url(), lease, "");
    if (!first.start() || !second.start()) throw std::runtime_error("a server does not start");
    if (!have_owners(base, 2, 20s)) continue;
    wait_until_all_are_served(second.port());
    const auto begun = steady::now();
    first.send(signal);
    if (!have_owners(base, 1, 10min)) throw std::runtime_error("the shards are not taken over");
    wait_until_all_are_served(second.port());
    all.push_back(std::chrono::duration_cast<milliseconds>(steady::now() - begun));
    first.end();
    second.end();
  }
  std::sort(all.begin(), all.end());
  std::printf("signal %d, leases of %d ms: %lld ms (median of %d), %lld ms at most\n", signal,
              lease, static_cast<long long>(all[all.size() / 2].count()), rounds,
              static_cast<long long>(all.back().count()));
  std::fflush(stdout);
  return all.back();
}

int rounds() { return std::getenv("VERGE_CLUSTER_FAULTS") != nullptr ? 10 : 1; }

// The limits here are those of a machine that stands still now and then. What they exclude is that
// the leases are waited for, in the first case, and that they are never taken, in the second.
TEST(a_server_that_is_ended, hands_its_shards_over_at_once) {
  if (!database::is_installed()) GTEST_SKIP() << "PostgreSQL is not installed";
  EXPECT_LT(out_of_reach(SIGTERM, 300'000, rounds()), 120s);
}

TEST(a_server_that_is_killed, is_replaced_when_its_leases_end) {
  if (!database::is_installed()) GTEST_SKIP() << "PostgreSQL is not installed";
  EXPECT_LT(out_of_reach(SIGKILL, 10'000, rounds()), 75s);
}

#if defined(VERGE_TOOL)
/// What the command prints, as soon as that is of the form: shards move until all are placed.
std::string output_like(const std::string& form, const std::string& command) {
  std::string said;
  for (int i = 0; i < 6000; ++i) {
    said = output_of(command);
    if (testing::Matches(MatchesRegex(form))(said)) break;
    std::this_thread::sleep_for(10ms);
  }
  return said;
}

TEST(the_tool, shows_the_servers_of_a_database_and_their_shards) {
  if (!database::is_installed()) GTEST_SKIP() << "PostgreSQL is not installed";
  const database base;
  const std::string show = VERGE_TOOL " cluster --store '" + base.url() + "'";
  EXPECT_THAT(output_of(show), HasSubstr("has no tasks yet: start `verge serve --store` on it"));

  node first(base.url(), 3'000, "");
  node second(base.url(), 3'000, "");
  ASSERT_TRUE(first.start() && second.start());
  const std::string head =
      ", 8 shards, 0 without an owner, lag [0-9]+ ms at most\n"
      "server +shards +up +tasks +http +peer\n";
  const std::string address = "127\\.0\\.0\\.1:[0-9]+";
  const auto line_with = [&](const std::string& shards_of_it) {
    return "[0-9a-f]+ +" + shards_of_it + " +[0-9]+s  " + address + " +" + address + " +" +
           address + "\n";
  };
  const std::string both = "2 servers" + head + "(" + line_with("[0-8]") + "){2}";
  EXPECT_THAT(output_like(both, show), MatchesRegex(both));
  const std::string with_shards = both + "\n  shard +epoch +lease left +lag  server\n" +
                                  "( +[0-7] +[1-9][0-9]* +[1-9][0-9]*ms +[0-9]+ms  [0-9a-f]+\n){8}";
  EXPECT_THAT(output_like(with_shards, show + " --shards"), MatchesRegex(with_shards));

  first.kill();  // its leases end, and the other takes them
  const std::string one = "1 server" + head + line_with("8");
  EXPECT_THAT(output_like(one, show), MatchesRegex(one));
  EXPECT_THAT(output_of(VERGE_TOOL " cluster --store 'postgresql:///none?host=/nowhere'"),
              StartsWith("verge: "));
}
#endif

}  // namespace
