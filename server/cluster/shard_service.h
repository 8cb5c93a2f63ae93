// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <verge/runtime.h>
#include <verge/task.h>

#include "../broker/committer.h"
#include "../postgres/postgres_store.h"
#include "../push/pusher.h"
#include "courier.h"
#include "lane.h"
#include "leases.h"

/// A shard that this server has: its store, its broker with the committer, and what pushes its
/// tasks. It lasts for one epoch: a server that takes the shard again makes another one.
///
/// Ground rules: `closed_` is under `lock_`; a command is given to the committer under the lock, so
/// that none comes after the committer has been told to end. `trusted_until_` is set by the task
/// that renews leases and read by the committer.
namespace verge::server::cluster {

/// Counts while the machine sleeps, too: a lease ends meanwhile.
std::chrono::nanoseconds since_boot() noexcept;

class shard_service : public std::enable_shared_from_this<shard_service> {
 public:
  /// Reads what the shard has; blocks. Throws store_error.
  shard_service(runtime& rt, postgres::joint_commits& commits, held_shard which, lease_times times,
                broker_options options, const push::push_options& push);
  shard_service(const shard_service&) = delete;
  shard_service& operator=(const shard_service&) = delete;

  /// `on_failure` is called when the shard cannot be served any more, with the reason. `all` takes
  /// commands for other shards.
  void start(std::function<void(const std::string&)> on_failure, command_sink& all);
  /// What was given is done; clients that wait are told that the tasks have moved. Called once.
  verge::task<> close();

  held_shard which() const noexcept { return which_; }
  bool has_failed() const noexcept { return failed_.load(); }
  /// The lease was renewed, or taken, by a request that was made at that time.
  void trust_from(std::chrono::nanoseconds asked) noexcept {
    trusted_until_.store((asked + times_.trust()).count());
  }
  bool is_trusted() const noexcept { return since_boot().count() < trusted_until_.load(); }

  /// False if it is closed: then the command is not executed.
  bool submit(request r);
  void clock_stepped() noexcept { committer_.clock_stepped(); }

  /// `number` is what the listener knows the lane by.
  std::unique_ptr<lane> open_lane(std::uint64_t number, std::weak_ptr<lane_listener> to);

 private:
  runtime& runtime_;
  const held_shard which_;
  const lease_times times_;
  const push::push_options push_options_;
  const std::unique_ptr<store> store_;
  committer committer_;
  std::unique_ptr<push::pusher> pusher_;
  std::unique_ptr<courier> courier_;
  std::atomic<std::int64_t> trusted_until_{0};
  std::atomic<bool> failed_{false};
  std::mutex lock_;
  bool closed_{false};
  join_handle<> committing_;
};

}  // namespace verge::server::cluster
