// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "load.h"
#include "nodes.h"
#include "proxy.h"
#include "support/database.h"

/// Three servers, each behind a proxy to one database, and what happens to them.
///
/// Two kinds of bad days. On some anything happens: kill -9, SIGSTOP, connections that are held
/// back or cut, a server that is ended and started, a database that is restarted. On the others a
/// server is made to believe what has not been true for a while, in the three ways that there
/// are, and is asked for tasks of all shards:
///
///   held      its packets to the database wait in the proxy, with writes among them that it made
///             while it had its leases; another server takes its shards and hands the same tasks
///             out; then the packets go on
///   stopped   the same with SIGSTOP: it wakes up, and clients ask before or after it has looked at
///             its leases
///   outdated  it passes commands on by an old map, to a server that has given the shard up
///
/// Clients that talk to sound servers only go on meanwhile, so that something contradicts it.
namespace verge::cluster_test {

class bad_days {
 public:
  static constexpr std::size_t servers = 3;
  /// `fault` is put into the servers; empty: none. `lease` is in milliseconds.
  explicit bad_days(const std::string& fault, int lease = 1500);

  /// Any server's port, also that of one that does not answer.
  std::uint16_t any(std::uint64_t random) const;
  /// That of one that is neither stopped nor held back.
  std::uint16_t sound(std::uint64_t random) const;

  /// Something bad, for so many seconds at most.
  void happen(std::mt19937_64& random, int longest);
  /// One of the three above.
  void mislead(std::mt19937_64& random, load& clients);
  std::string summary() const;

 private:
  void hold_back(std::size_t which, std::mt19937_64& random, load& clients);
  void stop(std::size_t which, std::mt19937_64& random, load& clients);
  void outdate(std::size_t which, std::mt19937_64& random, load& clients);
  void start(std::size_t which);
  void disturb_database(std::mt19937_64& random);

  const int lease_;
  server::test::database base_;
  std::vector<std::unique_ptr<proxy>> proxies_;
  std::vector<std::unique_ptr<node>> nodes_;
  std::array<std::atomic<std::uint16_t>, servers> ports_{};
  std::array<std::atomic<bool>, servers> away_{};
  int kills_{0}, stops_{0}, holds_{0}, cuts_{0}, restarts_{0}, ends_{0}, misled_{0};
};

}  // namespace verge::cluster_test
