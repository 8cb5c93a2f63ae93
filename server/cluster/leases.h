// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <verge/task.h>

#include "../postgres/link.h"

/// The leases of shards, and the servers that are there, as the database has them.
///
/// A lease is a row: shard, epoch, owner, and when it ends, by the database's clock. The epoch
/// rises whenever a server takes the shard, also if it is the one that had it: what a former owner
/// still writes names an epoch that is not there any more.
///
///     owner   epoch 6 |--renew--renew--X crash
///     lease           |==================..........|
///     another                                      take: epoch 7 |--renew--
///
/// Renewal and taking are conditional updates of the row: a lease that has ended is not renewed,
/// and one that has not ended is not taken. Neither compares times of two machines: an owner counts
/// from before it asked for the lease, on its own monotonic clock, and trusts it for two thirds of
/// its length.
namespace verge::server::cluster {

struct lease_times {
  std::chrono::milliseconds length{10'000};
  /// For so long its owner takes a lease to be its own, from before it asked for it.
  std::chrono::milliseconds trust() const noexcept { return length * 2 / 3; }
  std::chrono::milliseconds renewal() const noexcept { return length * 3 / 10; }
};

struct node_record {
  std::string name;   ///< of one process, chosen at random
  std::string peer;   ///< where it takes frames
  std::string tasks;  ///< where it takes beanstalk's protocol
  std::string http;   ///< may be empty
  std::chrono::milliseconds up{0};
};

struct shard_record {
  std::uint32_t shard{0};
  std::int64_t epoch{0};
  std::string owner;                  ///< empty: it was given up
  std::chrono::milliseconds left{0};  ///< of the lease; not positive: it has ended
};

/// What was there at one time.
struct roster {
  std::vector<node_record> nodes;
  std::vector<shard_record> shards;
};

struct held_shard {
  std::uint32_t shard{0};
  std::int64_t epoch{0};
};

class lease_table {
 public:
  explicit lease_table(postgres::link_options options, lease_times times = {})
      : times_(times), link_(std::move(options)) {}

  /// One transaction, one round trip: the server says that it is there, its leases are renewed, and
  /// all is read. `renewed` has those that are held from now on: others are lost.
  struct beat_result {
    roster all;
    std::vector<std::uint32_t> renewed;
  };
  verge::task<beat_result> beat(const node_record& me, const std::vector<held_shard>& mine);
  /// Of those, the ones that were free, or the caller's by an earlier epoch, with their new epochs.
  verge::task<std::vector<held_shard>> take(const std::string& me,
                                            const std::vector<std::uint32_t>& wanted);
  /// Ends the leases, if they are still those.
  verge::task<> give_up(const std::vector<held_shard>& which);
  /// What is there, for a server that takes no more shards.
  verge::task<roster> read();
  /// The server takes no more shards.
  verge::task<> leave(const std::string& me);

 private:
  const lease_times times_;
  postgres::link link_;
};

/// What is there now.
verge::task<roster> read(postgres::link& at);
/// The same; blocks.
roster look(postgres::link& at);

/// Which of the servers is to have a shard: the one with the highest hash of both (rendezvous), so
/// that a server that comes or leaves moves only the shards that it gets or had. Nothing if there
/// is none.
const node_record* place_of(std::uint32_t shard, const std::vector<node_record>& nodes) noexcept;

}  // namespace verge::server::cluster
