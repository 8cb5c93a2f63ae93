// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "player.h"

namespace verge::crash {

/// Several players, each on a thread of its own.
class crowd {
 public:
  crowd(
      int players, std::uint64_t seed, play_options options = {},
      std::function<position()> clock = [] { return position{0}; }) {
    for (int i = 0; i < players; ++i) {
      players_.push_back(std::make_unique<player>(i, seed, options, clock));
    }
  }
  ~crowd() { join(); }

  /// All connect to the server and play until it has ended, or until each has so many answers more.
  void start(std::uint16_t port, std::size_t answers_each = static_cast<std::size_t>(-1) / 2) {
    before_ = answers();
    for (auto& p : players_) {
      ++playing_;
      threads_.emplace_back([this, &player = *p, port, answers_each] {
        if (player.connect(port)) player.play(answers_each);
        --playing_;
      });
    }
  }
  void join() {
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }
  void disconnect() {
    for (auto& p : players_) p->disconnect();
  }
  /// Whether none has ended yet.
  bool all_play() const noexcept { return playing_ == players_.size(); }
  /// Since the last start.
  std::size_t answers_since_start() const { return answers() - before_; }
  std::size_t answers() const {
    std::size_t n = 0;
    for (const auto& p : players_) n += p->answers();
    return n;
  }

  void adopt(const snapshot& found, position begun = 0, position when = 0) {
    for (auto& p : players_) p->adopt(found, begun, when);
  }
  std::vector<const ledger*> ledgers() const {
    std::vector<const ledger*> all;
    for (const auto& p : players_) all.push_back(&p->book());
    return all;
  }
  std::vector<std::unique_ptr<player>>& players() noexcept { return players_; }
  bool heard_internal_error() const {
    return std::any_of(players_.begin(), players_.end(),
                       [](const auto& p) { return p->heard_internal_error(); });
  }

  /// Answers that were wrong, and ids that were told twice.
  std::vector<std::string> problems() const {
    std::vector<std::string> all;
    std::set<task_id> ids;
    for (const auto& p : players_) {
      all.insert(all.end(), p->problems().begin(), p->problems().end());
      for (const step& s : p->book().steps) {
        if (!s.has_answer || s.changed_nothing) continue;
        for (const known_task& t : s.made) {
          if (!ids.insert(t.id).second)
            all.push_back("id " + std::to_string(t.id) + " was told twice");
        }
      }
    }
    return all;
  }

 private:
  std::vector<std::unique_ptr<player>> players_;
  std::vector<std::thread> threads_;
  std::size_t before_{0};
  std::atomic<std::size_t> playing_{0};
};

}  // namespace verge::crash
