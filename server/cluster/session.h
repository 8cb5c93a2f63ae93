// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <verge/chan.h>
#include <verge/clock.h>
#include <verge/task.h>
#include <verge/time.h>

#include "../broker/client.h"
#include "../broker/command.h"
#include "lane.h"

/// A client of this server, in a cluster: its commands go to the shards that they are about, and
/// their replies come back in order.
///
/// One task executes the commands of a client one after the other; commands in a row that are about
/// the same shard are under way together. What the brokers cannot know of the client is here: the
/// tubes that it uses and watches, and the leases that end with its connection. Commands that are
/// answered `moved` are given again, to the server that has the shard then, until that has taken
/// too long.
///
/// A reserve over several shards asks them one after the other, those of this server first and then
/// the others, beginning with another one each time. If there is nothing, it waits at all of them
/// at once; what a second one hands out is given back as if it had not been handed out.
///
/// Ground rules: `inbox_` is under `lock_`; all else belongs to the task in run().
namespace verge::server::cluster {

/// How long a command waits for a shard if the database does not answer.
inline constexpr std::chrono::seconds patience_in_trouble{2};

class router;

class session final : public lane_listener, public std::enable_shared_from_this<session> {
 public:
  session(router& of, std::shared_ptr<client> front) : router_(of), front_(std::move(front)) {}

  /// From any thread, in their order.
  void submit(command c);
  static verge::task<> run(std::shared_ptr<session> self);

  void heard(std::uint64_t lane, reply r) override;
  void heard_all() noexcept override { wake(); }

 private:
  struct event {
    std::uint64_t lane{0};  ///< 0: a command
    command what;
    reply said;
  };
  struct route {
    std::uint64_t number{0};
    std::int64_t epoch{0};
    std::unique_ptr<lane> way;
  };
  struct held_lease {
    lease_token token{0};
    nanoseconds ttr{0};
    clock::time_point end{};
  };
  using shared_self = std::shared_ptr<session>;

  void wake() noexcept { static_cast<void>(woken_.try_send(true)); }
  void collect();
  verge::task<> wait_until(clock::time_point when);
  void tell(reply r);
  void tell(answer a, std::uint64_t number = 0, std::string text = {});

  verge::task<> execute_first();
  verge::task<> pass_on();
  verge::task<std::size_t> pass_on_once(std::uint32_t shard);
  void leave();
  bool run_here(command& c);
  void complete(command& c) const;
  void follow(const command& c, reply& r);

  // session_reserve.cc
  struct stop;
  verge::task<> reserve(command c);
  std::vector<stop> stops(const command& c);
  verge::task<bool> try_in_turn(std::vector<stop>& all, const command& c);
  verge::task<> wait_at_all(std::vector<stop>& all, const command& c);
  void ask(stop& at, const command& c, std::optional<clock::time_point> end);
  void listen(stop& at, std::vector<std::pair<std::uint32_t, reply>>& got);
  void put_back(std::uint32_t shard, const reply& r);
  void hold(const reply& r);
  std::optional<clock::time_point> first_lease_end() const noexcept;

  // session_gather.cc
  verge::task<> gather(command c);
  verge::task<std::vector<reply>> ask_all(const command& c);
  verge::task<> set_schedule(command c);
  verge::task<> show_cluster();

  std::optional<std::uint32_t> shard_of(const command& c) const;
  lane* lane_to(std::uint32_t shard);
  void drop_lane(std::uint32_t shard);
  bool is_stale(std::uint32_t shard);
  std::optional<reply> take_reply(std::uint32_t shard);
  verge::task<reply> reply_of(std::uint32_t shard, verb v);
  verge::task<bool> again(clock::time_point begun);
  std::string why_not();

  router& router_;
  const std::shared_ptr<client> front_;
  std::mutex lock_;
  std::deque<event> inbox_;
  chan<bool> woken_{1};
  timer alarm_;

  std::deque<command> work_;
  std::map<std::uint64_t, std::deque<reply>> replies_;  ///< by lane
  std::map<std::uint32_t, route> routes_;               ///< by shard
  std::string used_{"default"};
  std::vector<std::string> watched_{"default"};
  std::map<task_id, held_lease> held_;
  bool half_closed_{false};
  bool left_{false};
};

}  // namespace verge::server::cluster
