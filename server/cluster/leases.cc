// SPDX-License-Identifier: Apache-2.0

#include "leases.h"

#include <algorithm>

#include "../postgres/fault.h"

namespace verge::server::cluster {

namespace {

using postgres::parameters;
using postgres::rows;

constexpr const char* say_here =
    "INSERT INTO verge_node (node, peer, tasks, http, started, expires) "
    "VALUES (convert_from($1::bytea, 'UTF8'), convert_from($2::bytea, 'UTF8'), "
    "convert_from($3::bytea, 'UTF8'), convert_from($4::bytea, 'UTF8'), now(), "
    "now() + $5::int8 * interval '1 millisecond') "
    "ON CONFLICT (node) DO UPDATE SET expires = excluded.expires";
constexpr const char* forget_nodes =
    "DELETE FROM verge_node WHERE expires < now() - interval '1 minute'";
constexpr const char* renew =
    "UPDATE verge_shard AS s SET expires = now() + $4::int8 * interval '1 millisecond' "
    "FROM unnest($2::int8[], $3::int8[]) AS u (shard, epoch) "
    "WHERE s.shard = u.shard AND s.epoch = u.epoch AND s.owner = convert_from($1::bytea, 'UTF8') "
    "AND s.expires > now() RETURNING s.shard::int8";
/// For a test of the checker: an owner that takes its lease to be its own, whatever has happened.
constexpr const char* renew_whatever =
    "UPDATE verge_shard AS s SET expires = now() + $4::int8 * interval '1 millisecond', "
    "owner = convert_from($1::bytea, 'UTF8'), epoch = u.epoch "
    "FROM unnest($2::int8[], $3::int8[]) AS u (shard, epoch) "
    "WHERE s.shard = u.shard RETURNING s.shard::int8";
constexpr const char* read_nodes =
    "SELECT node::bytea, peer::bytea, tasks::bytea, http::bytea, "
    "(extract(epoch FROM now() - started) * 1000)::int8 FROM verge_node WHERE expires > now() "
    "ORDER BY node";
constexpr const char* read_shards =
    "SELECT shard::int8, epoch, owner::bytea, CASE WHEN expires > now() "
    "THEN (extract(epoch FROM expires - now()) * 1000)::int8 + 1 ELSE 0::int8 END "
    "FROM verge_shard ORDER BY shard";
/// One whose former owner is about to commit is taken the next time.
constexpr const char* take_shards =
    "UPDATE verge_shard SET epoch = epoch + 1, owner = convert_from($1::bytea, 'UTF8'), "
    "expires = now() + $3::int8 * interval '1 millisecond' "
    "WHERE shard IN (SELECT shard FROM verge_shard WHERE shard = ANY ($2::int8[]) "
    "AND (expires <= now() OR owner = '' OR owner = convert_from($1::bytea, 'UTF8')) "
    "ORDER BY shard FOR UPDATE SKIP LOCKED) RETURNING shard::int8, epoch";
constexpr const char* end_leases =
    "UPDATE verge_shard AS s SET owner = '', expires = '-infinity' "
    "FROM unnest($1::int8[], $2::int8[]) AS u (shard, epoch) "
    "WHERE s.shard = u.shard AND s.epoch = u.epoch";
constexpr const char* remove_node =
    "DELETE FROM verge_node WHERE node = convert_from($1::bytea, 'UTF8')";

/// In the order of the shards, in which all transactions lock leases.
struct columns {
  std::vector<std::int64_t> shards, epochs;
  explicit columns(std::vector<held_shard> all) {
    std::sort(all.begin(), all.end(),
              [](const held_shard& a, const held_shard& b) { return a.shard < b.shard; });
    for (const held_shard& h : all) {
      shards.push_back(h.shard);
      epochs.push_back(h.epoch);
    }
  }
};

std::uint64_t hash_of(std::uint32_t shard, std::string_view node) noexcept {
  std::uint64_t h = 0xcbf29ce484222325U;
  const auto mix = [&h](unsigned char c) { h = (h ^ c) * 0x100000001b3U; };
  for (const char c : node) mix(static_cast<unsigned char>(c));
  for (int i = 0; i < 4; ++i) mix(static_cast<unsigned char>(shard >> (8 * i)));
  h ^= h >> 32;
  h *= 0xd6e8feb86659fd93U;
  return h ^ h >> 32;
}

roster roster_of(const rows& n, const rows& s) {
  roster r;
  for (int i = 0; i < n.size(); ++i) {
    r.nodes.push_back({.name = std::string(n.at(i, 0)),
                       .peer = std::string(n.at(i, 1)),
                       .tasks = std::string(n.at(i, 2)),
                       .http = std::string(n.at(i, 3)),
                       .up = std::chrono::milliseconds(n.number(i, 4))});
  }
  for (int i = 0; i < s.size(); ++i) {
    r.shards.push_back({.shard = static_cast<std::uint32_t>(s.number(i, 0)),
                        .epoch = s.number(i, 1),
                        .owner = std::string(s.at(i, 2)),
                        .left = std::chrono::milliseconds(s.number(i, 3))});
  }
  return r;
}

}  // namespace

verge::task<roster> read(postgres::link& at) {
  std::vector<postgres::statement> all;
  all.push_back({read_nodes, {}});
  all.push_back({read_shards, {}});
  const std::vector<rows> found = co_await at.run(all);
  co_return roster_of(found[0], found[1]);
}

roster look(postgres::link& at) {
  const std::vector<rows> found = at.run_here({{read_nodes, {}}, {read_shards, {}}});
  return roster_of(found[0], found[1]);
}

verge::task<lease_table::beat_result> lease_table::beat(const node_record& me,
                                                        const std::vector<held_shard>& mine) {
  const columns held(mine);
  std::vector<postgres::statement> all;
  all.push_back(
      {say_here, parameters().bytes(me.name).bytes(me.peer).bytes(me.tasks).bytes(me.http).number(
                     times_.length.count())});
  all.push_back({forget_nodes, {}});
  all.push_back({postgres::faulty("renewal-after-expiry") ? renew_whatever : renew,
                 parameters()
                     .bytes(me.name)
                     .numbers(held.shards)
                     .numbers(held.epochs)
                     .number(times_.length.count())});
  all.push_back({read_nodes, {}});
  all.push_back({read_shards, {}});
  const std::vector<rows> found = co_await link_.run(all);
  beat_result r;
  for (int i = 0; i < found[2].size(); ++i) {
    r.renewed.push_back(static_cast<std::uint32_t>(found[2].number(i, 0)));
  }
  r.all = roster_of(found[3], found[4]);
  co_return r;
}

verge::task<std::vector<held_shard>> lease_table::take(const std::string& me,
                                                       const std::vector<std::uint32_t>& wanted) {
  std::vector<postgres::statement> all;
  all.push_back({take_shards, parameters()
                                  .bytes(me)
                                  .numbers({wanted.begin(), wanted.end()})
                                  .number(times_.length.count())});
  const std::vector<rows> found = co_await link_.run(all);
  std::vector<held_shard> taken;
  taken.reserve(static_cast<std::size_t>(found[0].size()));
  for (int i = 0; i < found[0].size(); ++i) {
    taken.push_back({.shard = static_cast<std::uint32_t>(found[0].number(i, 0)),
                     .epoch = found[0].number(i, 1)});
  }
  co_return taken;
}

verge::task<> lease_table::give_up(const std::vector<held_shard>& which) {
  const columns held(which);
  std::vector<postgres::statement> all;
  all.push_back({end_leases, parameters().numbers(held.shards).numbers(held.epochs)});
  static_cast<void>(co_await link_.run(all));
}

verge::task<roster> lease_table::read() { co_return co_await cluster::read(link_); }

verge::task<> lease_table::leave(const std::string& me) {
  std::vector<postgres::statement> all;
  all.push_back({remove_node, parameters().bytes(me)});
  static_cast<void>(co_await link_.run(all));
}

const node_record* place_of(std::uint32_t shard, const std::vector<node_record>& nodes) noexcept {
  const node_record* best = nullptr;
  for (const node_record& n : nodes) {
    if (best == nullptr || hash_of(shard, best->name) < hash_of(shard, n.name)) best = &n;
  }
  return best;
}

}  // namespace verge::server::cluster
