// SPDX-License-Identifier: Apache-2.0

#include "cluster_command.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "cluster/lag.h"
#include "cluster/leases.h"
#include "postgres/schema.h"

namespace verge::server {

cluster_command::cluster_command(CLI::App& tool) {
  command_ = tool.add_subcommand("cluster", "Show the servers of a database, and their shards");
  command_->add_option("--store", store_, "The database, like postgresql://user@host/name")
      ->required();
  command_->add_flag("--shards", shards_, "A line for each shard");
}

int cluster_command::run() {
  postgres::link to({.url = store_, .must_sync = false});
  const postgres::layout found = postgres::look_at(to);
  if (found.version == 0) {
    std::printf("%s has no tasks yet: start `verge serve --store` on it\n",
                postgres::without_password(store_).c_str());
    return 1;
  }
  const cluster::roster all = cluster::look(to);
  std::map<std::string, std::size_t> counts;
  std::size_t free = 0;
  for (const cluster::shard_record& s : all.shards) {
    if (s.left.count() <= 0 || s.owner.empty()) {
      ++free;
    } else {
      ++counts[s.owner];
    }
  }
  const cluster::lags behind = cluster::look_at_lags(to);
  const auto lag_of = [&behind](std::uint32_t shard) {
    const auto at = behind.find(shard);
    return at == behind.end() ? 0LL : static_cast<long long>(at->second.count());
  };
  long long most = 0;
  for (const cluster::shard_record& s : all.shards) most = std::max(most, lag_of(s.shard));
  std::printf("%zu server%s, %u shards, %zu without an owner, lag %lld ms at most\n",
              all.nodes.size(), all.nodes.size() == 1 ? "" : "s", found.shards, free, most);
  std::printf("%-18s %7s %10s  %-22s %-22s %s\n", "server", "shards", "up", "tasks", "http",
              "peer");
  for (const cluster::node_record& n : all.nodes) {
    std::printf("%-18s %7zu %9llds  %-22s %-22s %s\n", n.name.c_str(), counts[n.name],
                static_cast<long long>(n.up.count() / 1000), n.tasks.c_str(),
                n.http.empty() ? "-" : n.http.c_str(), n.peer.c_str());
  }
  if (!shards_) return 0;
  std::printf("\n%7s %10s %12s %12s  %s\n", "shard", "epoch", "lease left", "lag", "server");
  for (const cluster::shard_record& s : all.shards) {
    std::printf("%7u %10lld %10lldms %10lldms  %s\n", s.shard, static_cast<long long>(s.epoch),
                static_cast<long long>(s.left.count()), lag_of(s.shard),
                s.left.count() <= 0 || s.owner.empty() ? "-" : s.owner.c_str());
  }
  return 0;
}

}  // namespace verge::server
