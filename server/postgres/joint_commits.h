// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <vector>

#include <verge/chan.h>
#include <verge/task.h>

#include "pool.h"
#include "transaction.h"

/// The commits of the shards of one server. Those that come while a transaction is under way are
/// the next one: a server with many shards, each of which has a few commands, still writes many
/// rows for each time that the database syncs.
///
/// One at a time: with two, each has half of the rows, and everything takes longer.
///
/// Ground rules
///  - A task that commits puts an entry into the queue. If no task leads it leads; otherwise it
///    waits until it is told that its entry is done, or that it is to lead. The leader lets all
///    other ready tasks run, takes entries out of the queue, its own first, and writes them. Then
///    the first that is left in the queue leads, or none.
///  - An entry is in the frame of its task. It belongs to the lock while it is in the queue, then
///    to the leader, and to its task again once that was told. A task that commits is not
///    cancelled.
///  - A transaction that the database refuses has done nothing. If it had several shards, each is
///    tried alone: one that is lost, or has an error of its own, fails by itself.
namespace verge::server::postgres {

class joint_commits {
 public:
  /// `links` outlives it.
  explicit joint_commits(pool& links) noexcept : links_(links) {}
  joint_commits(const joint_commits&) = delete;
  joint_commits& operator=(const joint_commits&) = delete;

  pool& links() const noexcept { return links_; }

  /// Returns when the database has what the batch changes. Throws refusal or link_error.
  verge::task<> commit(shard_lease of, const batch& b);
  /// The same by itself, and blocks.
  void commit_here(shard_lease of, const batch& b);

 private:
  /// A transaction with this many changes takes no further shard.
  static constexpr std::size_t enough = 4096;
  static constexpr int most_attempts = 5;

  enum class told { done, to_lead };
  struct entry {
    shard_lease of;
    const batch* what;
    std::exception_ptr failure{};
    chan<told> answer{1};
  };

  verge::task<> write(const std::vector<entry*>& all);
  verge::task<> try_to_write(const std::vector<entry*>& all, std::exception_ptr& failure);
  void finish(const std::vector<entry*>& all, const entry& leader);
  std::vector<entry*> take();

  pool& links_;
  std::mutex lock_;
  std::deque<entry*> queue_;
  bool led_{false};  ///< whether there is a leader
};

}  // namespace verge::server::postgres
