// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "client.h"
#include "ledger.h"

/// A client that does at random what clients do, and keeps a ledger of it.
///
/// It works in windows: some commands at once, each about other tasks, then all their answers. Each
/// answer is held against what the ledger says that it must be. The same seed gives the same
/// commands, as far as time lets it.
namespace verge::crash {

inline constexpr std::int64_t millisecond = 1'000'000;

struct play_options {
  std::size_t most_in_window{24};
  std::size_t longest_body{2'000};
  /// One window in so many has a put-batch of this many bytes; 0: none has.
  std::size_t large_every{0};
  std::size_t large_bytes{3U << 20};
  std::size_t most_tasks{400};
};

class player {
 public:
  /// `clock` tells the position, for recordings.
  player(
      int number, std::uint64_t seed, play_options options = {},
      std::function<position()> clock = [] { return position{0}; });

  /// Connects to a server that has been started. False if it has ended already.
  bool connect(std::uint16_t port);
  /// Leaves, and what it held is ready again.
  void disconnect();
  /// After a crash: what was found is what there is. The server was started at `begun`, and at
  /// `when` what was found was sure to last.
  void adopt(const snapshot& found, position begun, position when);
  /// One window. False if the server has ended, or has said INTERNAL_ERROR.
  bool play();
  /// Windows until there are so many answers more.
  bool play(std::size_t answers);

  const ledger& book() const noexcept { return book_; }
  ledger& book() noexcept { return book_; }
  const world& known() const noexcept { return world_; }
  std::size_t answers() const noexcept { return answers_; }
  bool heard_internal_error() const noexcept { return internal_error_; }
  /// Answers that were not what they must be.
  const std::vector<std::string>& problems() const noexcept { return problems_; }

 private:
  struct sent_command {
    step what;
    std::string text;  ///< its line, for messages
    std::function<bool(const std::string& answer, step&)> take;
  };

  std::uint64_t random(std::uint64_t below) { return random_() % below; }
  bool one_in(std::uint64_t n) { return random(n) == 0; }
  known_task* pick(const std::function<bool(const known_task&)>& fits);
  known_task new_task();
  std::string make_body(std::size_t size);
  static std::string put_line(const known_task& t);
  void add(sent_command c);
  void add_something();
  void add_put();
  void add_put_key();
  void add_put_batch(std::size_t count, std::size_t size);
  void add_by_key();
  void add_on_lease();
  void add_remove();
  void add_kick();
  void add_pause();
  void add_reserve();
  bool take_reserved(const std::string& first, step& s);
  bool take_one_reserved(const std::string& line, step& s);
  bool expect(bool right, const std::string& text, const std::string& answer);
  void complain(const std::string& text);

  int number_;
  std::mt19937_64 random_;
  play_options options_;
  std::function<position()> clock_;
  std::string tube_, dead_tube_, paused_tube_;
  ledger book_;
  world world_;
  std::unique_ptr<connection> connection_;
  std::vector<sent_command> window_;
  std::set<task_id> busy_;
  std::set<std::string> busy_keys_;
  std::string out_;
  std::uint64_t made_{0};
  std::uint64_t keys_{0};
  std::uint64_t burials_{std::uint64_t{1} << 40};
  task_id highest_id_{0};
  int life_{-1};
  std::atomic<std::size_t> answers_{0};  ///< others look at it
  bool internal_error_{false};
  std::vector<std::string> problems_;
};

}  // namespace verge::crash
