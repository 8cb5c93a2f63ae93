// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <verge/chan.h>
#include <verge/runtime.h>
#include <verge/task.h>
#include <verge/time.h>

#include "../postgres/joint_commits.h"
#include "../postgres/pool.h"
#include "../postgres/schema.h"
#include "leases.h"
#include "shard_service.h"

/// This server as one of many: which shards it has, and which server has the others.
///
/// One task, in keep(), renews the leases, takes shards that are free and placed here, gives up
/// those that are placed on another server that is there, and drops those that it has lost. It
/// looks every three seconds, when the first lease of another server ends, and when it is told to:
/// by a server that has given something up, by a shard that has failed, by a command that found its
/// shard moved.
///
/// Ground rules: `known_`, `mine_` and `trouble_` are under `lock_`; keep() alone changes them. A
/// service is dropped from `mine_` before it is closed, so that no new command finds it.
namespace verge::server::cluster {

struct membership_options {
  postgres::link_options database;
  std::uint32_t shards{16};  ///< when the tables are made
  lease_times times;
  broker_options broker;
  push::push_options push;
  node_record me;  ///< without its name
};

class membership {
 public:
  /// Makes or checks the tables; blocks. Throws store_error.
  membership(runtime& rt, membership_options options);
  membership(const membership&) = delete;
  membership& operator=(const membership&) = delete;

  /// The addresses are known now. Returns when a first look at the leases was made.
  void start(std::string peer, std::string tasks, std::string http);
  /// Gives all shards up, at once. This server goes on as a way to the others.
  void leave();
  /// After leave().
  void stop();

  std::uint32_t shards() const noexcept { return layout_.shards; }
  std::uint32_t shard_of(std::string_view tube) const noexcept;
  const std::string& secret() const noexcept { return layout_.secret; }
  const std::string& name() const noexcept { return options_.me.name; }

  /// The shard, if this server has it.
  std::shared_ptr<shard_service> local(std::uint32_t shard);
  /// The same for another server that sends commands for it.
  std::shared_ptr<shard_service> local_for_peer(std::uint32_t shard);
  /// Where the server is that has it, if another one has; empty if none is known to.
  std::string peer_of(std::uint32_t shard);
  /// As it is known here.
  std::int64_t epoch_of(std::uint32_t shard);
  /// Why the database does not answer; empty if it does.
  std::string trouble();
  roster known();
  /// Servers, shards, and how far these are behind, as the database has it now. Throws store_error.
  verge::task<cluster_view> survey();
  /// Looks at the leases soon.
  void look() noexcept;
  void clock_stepped() noexcept;

  /// Tells the servers at these addresses to look at the leases. Set before start().
  std::function<void(const std::vector<std::string>&)> tell;
  /// Takes commands for other shards. Set before start().
  command_sink* everywhere{nullptr};

 private:
  using shared_service = std::shared_ptr<shard_service>;

  verge::task<> keep();
  verge::task<> beat();
  verge::task<> take_free();
  void serve(const held_shard& h, std::chrono::nanoseconds asked);
  verge::task<> hand_over();
  verge::task<> drop(std::vector<shared_service> which, bool give_up);
  std::vector<shared_service> all_mine();
  shared_service forget(std::uint32_t shard);
  void note_trouble(const std::string& why);
  std::vector<std::string> other_peers();
  std::chrono::nanoseconds until_next_look();

  runtime& runtime_;
  membership_options options_;
  postgres::pool links_;
  postgres::joint_commits commits_{links_};
  postgres::layout layout_;
  lease_table leases_;
  std::mutex lock_;
  roster known_;
  std::map<std::uint32_t, shared_service> mine_;
  std::string trouble_;
  std::atomic<bool> leaving_{false};
  std::atomic<bool> stopping_{false};
  bool has_come_{false};  ///< of keep(), as the next
  bool has_left_{false};
  bool some_left_{false};
  chan<bool> woken_{1};
  chan<bool> first_look_{1};
  chan<bool> left_{1};
  timer alarm_;
  join_handle<> keeping_;
};

}  // namespace verge::server::cluster
