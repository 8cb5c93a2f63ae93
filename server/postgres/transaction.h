// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../store/store.h"
#include "link.h"

/// What batches of one or more shards change, as the statements of one transaction.
///
/// The last statement, the fence, locks the rows of the shards' leases, for sharing and in the
/// order of the shards, if each has the epoch that it is expected to have and has not ended;
/// otherwise it fails, with is_lost_lease(), and nothing is done. So a server that was paused, or
/// whose packets were late, changes nothing once another one has taken a shard over: the other
/// one's change of the row waits for transactions that hold the lock, and comes before those that
/// do not hold it yet. The lock is held while the database commits, and not while it waits for
/// the rest of the statements: a server that stands still in the middle of them holds no lease.
///
/// Rows are written and removed by primary key. An index that dead rows gather in is not read.
namespace verge::server::postgres {

struct shard_lease {
  std::uint32_t shard{0};
  std::int64_t epoch{0};
};

/// Whether a transaction was refused because another server has one of its shards.
bool is_lost_lease(const refusal& why) noexcept;
/// Whether it is to be tried again.
bool is_transient(const refusal& why) noexcept;

class transaction {
 public:
  /// In the order of their shards. The batch must last until statements() has returned.
  void add(shard_lease of, const batch& b);
  std::vector<statement> statements() const;
  /// The fence alone: whether the leases are still ours.
  std::vector<statement> check() const;

 private:
  using numbers = std::vector<std::int64_t>;
  using texts = std::vector<std::string_view>;

  struct tasks {
    numbers shard, id, tube, kind, priority, at;
    texts key, fields, body;

    void add(std::uint32_t of, const task& t, const place& p, std::string_view record);
  };
  /// A shard with a number, a name or both, and a value.
  struct rows_by_shard {
    numbers shard, number;
    texts name, value;
  };

  std::string_view keep(std::string text) { return kept_.emplace_back(std::move(text)); }
  std::string_view record_of(const task& t, const place& p);
  void add_tasks(std::uint32_t shard, const batch& b);
  void add_rest(std::uint32_t shard, const batch& b);
  void add_fence(std::vector<statement>& all) const;

  numbers leases_, epochs_;
  rows_by_shard removed_;
  rows_by_shard changed_;
  tasks moved_;
  tasks inserted_;
  rows_by_shard tubes_, tubes_removed_;
  rows_by_shard notes_, notes_removed_;
  rows_by_shard marks_;
  std::deque<std::string> kept_;
};

}  // namespace verge::server::postgres
