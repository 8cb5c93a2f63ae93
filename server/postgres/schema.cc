// SPDX-License-Identifier: Apache-2.0

#include "schema.h"

#include <fmt/format.h>

#include <array>
#include <random>

namespace verge::server::postgres {

namespace {

/// Every key begins with the shard, so that a database that spreads rows over machines can do it by
/// shard. A task is one row: what changes at a reservation is `fields`, which no index has, and a
/// page has room for another version of the row, so that the indexes are not written (a HOT
/// update). The three indexes are partial: a task is in one of them. Dead rows are removed early,
/// at a fiftieth of the table, because an index that is read from its beginning walks over them.
constexpr const char* version_1 = R"(
CREATE TABLE verge_shard (
  shard int4 PRIMARY KEY,
  epoch int8 NOT NULL DEFAULT 0,
  owner text NOT NULL DEFAULT '',
  expires timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 25);
CREATE TABLE verge_node (
  node text PRIMARY KEY,
  peer text NOT NULL,
  tasks text NOT NULL,
  http text NOT NULL,
  started timestamptz NOT NULL,
  expires timestamptz NOT NULL
) WITH (fillfactor = 25);
CREATE TABLE verge_mark (
  shard int4 NOT NULL,
  name text NOT NULL,
  value int8 NOT NULL,
  PRIMARY KEY (shard, name)
) WITH (fillfactor = 25);
CREATE TABLE verge_tube (
  shard int4 NOT NULL,
  tube int8 NOT NULL,
  record bytea NOT NULL,
  PRIMARY KEY (shard, tube)
) WITH (fillfactor = 25, autovacuum_vacuum_scale_factor = 0.02);
CREATE TABLE verge_note (
  shard int4 NOT NULL,
  name bytea NOT NULL,
  value bytea NOT NULL,
  PRIMARY KEY (shard, name)
);
CREATE TABLE verge_task (
  id int8 NOT NULL,
  tube int8 NOT NULL,
  priority int8 NOT NULL,
  at int8 NOT NULL,
  shard int4 NOT NULL,
  kind int2 NOT NULL,
  changed bool NOT NULL DEFAULT false,
  key bytea NOT NULL,
  fields bytea NOT NULL,
  body bytea NOT NULL,
  PRIMARY KEY (shard, id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);
CREATE INDEX verge_task_delayed ON verge_task (shard, tube, at, id) WHERE kind = 1;
CREATE INDEX verge_task_ready ON verge_task (shard, tube, priority, at, id) WHERE kind = 2;
CREATE INDEX verge_task_buried ON verge_task (shard, tube, at, id) WHERE kind = 3;
CREATE UNIQUE INDEX verge_task_key ON verge_task (shard, tube, key) WHERE key <> ''::bytea;
)";

constexpr std::array scripts{version_1};
constexpr auto newest = static_cast<std::uint32_t>(scripts.size());

constexpr const char* exists =
    "SELECT count(*)::int8 FROM information_schema.tables "
    "WHERE table_name = 'verge_meta' AND table_schema = current_schema()";
constexpr const char* read_meta = "SELECT name::bytea, value::bytea FROM verge_meta";

std::string random_secret() {
  std::random_device random;
  std::string text;
  for (int i = 0; i < 4; ++i) text += fmt::format("{:08x}", random());
  return text;
}

/// Two servers may come at the same time: the second waits for the lock on the row, and then finds
/// another version than the one that it wanted to change, so that its division fails.
std::string upgrade(std::uint32_t from, std::uint32_t shards) {
  std::string sql = "BEGIN;";
  if (from == 0) {
    sql += fmt::format(
        "CREATE TABLE verge_meta (name text PRIMARY KEY, value text NOT NULL);"
        "INSERT INTO verge_meta VALUES ('version', '0'), ('shards', '{}'), ('secret', '{}');",
        shards, random_secret());
  }
  sql += fmt::format(
      "SELECT 1 / count(*) FROM (SELECT 1 FROM verge_meta WHERE name = 'version' AND value = '{}' "
      "FOR UPDATE) AS held;",
      from);
  for (std::uint32_t v = from; v < newest; ++v) sql += scripts[v];
  if (from == 0) {
    sql +=
        fmt::format("INSERT INTO verge_shard (shard) SELECT generate_series(0, {} - 1);", shards);
  }
  sql += fmt::format("UPDATE verge_meta SET value = '{}' WHERE name = 'version'; COMMIT;", newest);
  return sql;
}

}  // namespace

layout look_at(link& to) {
  layout found;
  if (to.run_here({{exists, {}}}).front().number(0, 0) == 0) return found;
  const rows all = to.run_here({{read_meta, {}}}).front();
  for (int i = 0; i < all.size(); ++i) {
    const std::string value(all.at(i, 1));
    if (all.at(i, 0) == "version") found.version = static_cast<std::uint32_t>(std::stoul(value));
    if (all.at(i, 0) == "shards") found.shards = static_cast<std::uint32_t>(std::stoul(value));
    if (all.at(i, 0) == "secret") found.secret = value;
  }
  return found;
}

layout prepare(link& to, std::uint32_t shards) {
  for (int attempt = 0;; ++attempt) {
    layout found = look_at(to);
    if (found.version > newest) {
      throw store_error(fmt::format(
          "the tables of the database have version {}, and this version of verge knows version {}: "
          "use the version of verge that made them",
          found.version, newest));
    }
    if (found.version == newest) return found;
    try {
      to.script(upgrade(found.version, shards));
    } catch (const refusal& e) {
      // Another server does the same, and was first.
      if (attempt >= 10 || e.code == "42501") throw;
    }
  }
}

}  // namespace verge::server::postgres
