// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "checker.h"

/// Clients that do random things, and write down what they were told.
///
/// There is one tube for each shard. Half of the tubes are lively: tasks with delays and short
/// TTRs, leases that are held, released and touched. In the others, the quiet ones, the owner has
/// nothing to do by itself: tasks are ready at once, and their leases are ended at once. An owner
/// that was away and has timers that expired meanwhile asks for its lease before anything else;
/// that of a quiet tube has only its clients to answer. All tubes have a stock of ready tasks:
/// what is handed out first by an owner is what a former owner would hand out first.
namespace verge::cluster_test {

class load {
 public:
  static constexpr std::uint32_t tubes = 8;  ///< and shards
  /// The port of HTTP of a server, by a random number.
  using choice = std::function<std::uint16_t(std::uint64_t)>;

  /// `sound` chooses a server that is there.
  explicit load(choice sound);

  /// One client of the servers that `at` chooses, until `ending` is set.
  void play(std::uint64_t seed, const choice& at, const std::atomic<bool>& ending);
  /// A client for each tube, which reserves at this server and waits for its answer, whenever that
  /// comes.
  std::vector<std::thread> besiege(std::uint16_t port);
  /// Takes everything that is there, until all is found that has to be, or nothing was found for so
  /// many seconds.
  void take_all(int patience);

  std::vector<operation> history();
  std::vector<std::string> tube_names() const;

 private:
  struct player;
  struct tube_of_test {
    std::string name;
    bool is_quiet{false};
    /// Of tasks that are there, or perhaps more: what may have been put, without what was removed
    /// for sure. None, if a client has found none.
    std::atomic<int> stock{0};
  };

  void note(operation o);
  void put(player& p, tube_of_test& t);
  /// Whether there was any.
  bool reserve(player& p, tube_of_test& t, int most, std::chrono::seconds patience);
  void treat(player& p, tube_of_test& t, const operation& handed_out);
  void end_lease(player& p, tube_of_test& t, act what, const operation& of);
  void by_key(player& p, act what);
  bool is_complete();

  const choice sound_;
  std::array<tube_of_test, tubes> tubes_;
  std::mutex lock_;
  std::vector<operation> history_;
  std::atomic<std::uint64_t> next_{0};
};

}  // namespace verge::cluster_test
