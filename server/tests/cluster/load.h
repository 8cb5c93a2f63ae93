#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "checker.h"

/// Clients that do random things at random servers, and write down what they were told.
namespace verge::cluster_test {

class load {
 public:
  /// `port` gives the port of HTTP of any server, or 0 if none is known.
  explicit load(std::function<std::uint16_t(std::uint64_t)> port) : port_(std::move(port)) {}

  /// One client, until `ending` is set.
  void play(std::uint64_t seed, const std::atomic<bool>& ending);
  /// Takes everything that is there, until all is found that has to be, or for so many seconds.
  void take_all(int seconds);

  std::vector<operation> history();
  std::size_t size();

 private:
  struct player;

  void note(operation o);
  void put(player& p);
  void reserve(player& p, const std::string& tube, int most, bool at_the_end);
  void end_lease(player& p, act what, const operation& of);
  void by_key(player& p, act what);

  const std::function<std::uint16_t(std::uint64_t)> port_;
  std::mutex lock_;
  std::vector<operation> history_;
  std::atomic<std::uint64_t> next_{0};
};

}  // namespace verge::cluster_test
