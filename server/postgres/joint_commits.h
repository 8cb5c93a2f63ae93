// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <exception>
#include <mutex>
#include <vector>

#include <verge/chan.h>
#include <verge/task.h>

#include "pool.h"
#include "transaction.h"

/// The commits of the shards of one server. Those that come while a transaction is under way are
/// the next one: a server with many shards, each of which has a few commands, still writes many
/// rows for each time that the database syncs. One at a time: with two, each has half of the rows,
/// and everything takes longer.
///
/// Ground rules
///  - A task that commits puts an entry into the queue. If no task leads it leads; otherwise it
///    waits until it is told that its entry is done, or that it is to lead. The leader lets all
///    other ready tasks run, takes entries out of the queue, its own first, and writes them. Then
///    the first that is left in the queue leads, or none. A leader whose turn ends in whatever
///    way, for lack of memory or with its runtime, tells the others, and there is a next one.
///  - An entry is in the frame of its task, and in one list: the queue, or the group of a leader.
///    The lists are linked through the entries, under the lock; an entry that is destroyed leaves
///    its list. While it is in a group, the leader reads what it commits and sets how it ended.
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

  /// Returns when the database has what the batch changes. Throws refusal or link_error, or
  /// store_error if it was given up.
  verge::task<> commit(shard_lease of, const batch& b);
  /// The same by itself, and blocks.
  void commit_here(shard_lease of, const batch& b);

 private:
  class entry;
  class turn;
  /// In the order of their shards, or as they came.
  struct list {
    entry* first{nullptr};
    void insert(entry*& at, entry& e) noexcept;
    void remove(entry& e) noexcept;
  };

  void take(list& group) noexcept;
  void finish(list& group, entry& leader) noexcept;
  verge::task<> write(list& group);
  verge::task<> try_to_write(const std::vector<entry*>& all, std::exception_ptr& failure);

  pool& links_;
  std::mutex lock_;
  list queue_;
  bool led_{false};  ///< whether there is a leader
};

}  // namespace verge::server::postgres
