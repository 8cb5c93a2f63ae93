// SPDX-License-Identifier: Apache-2.0

#include "transaction.h"

#include <utility>

#include "../store/records.h"
#include "fault.h"

namespace verge::server::postgres {

namespace {

// ---- The statements that write. -----------------------------------------------------------------

constexpr const char* fence =
    "SELECT 1 / (count(*) = $3::int8)::int4 FROM (SELECT 1 "
    "FROM unnest($1::int8[], $2::int8[]) AS u (shard, epoch) "
    "JOIN verge_shard AS s ON s.shard = u.shard AND s.epoch = u.epoch "
    "WHERE s.expires > now() FOR SHARE OF s) AS held";

/// For a test of the checker: any lease will do.
constexpr const char* fence_of_any =
    "SELECT 1 / (count(*) = $3::int8)::int4 FROM (SELECT 1 "
    "FROM unnest($1::int8[], $2::int8[]) AS u (shard, epoch) "
    "JOIN verge_shard AS s ON s.shard = u.shard AND u.epoch >= 0 "
    "WHERE s.expires > now() FOR SHARE OF s) AS held";

constexpr const char* insert_tasks =
    "INSERT INTO verge_task (shard, id, tube, kind, priority, at, key, fields, body) "
    "SELECT u.shard, u.id, u.tube, u.kind, u.priority, u.at, u.key, u.fields, u.body "
    "FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], "
    "$7::bytea[], $8::bytea[], $9::bytea[]) "
    "AS u (shard, id, tube, kind, priority, at, key, fields, body)";

/// Columns that an index has are named only where they change: then the update is not HOT.
constexpr const char* change_fields =
    "UPDATE verge_task AS t SET fields = u.fields, changed = true "
    "FROM unnest($1::int8[], $2::int8[], $3::bytea[]) AS u (shard, id, fields) "
    "WHERE t.shard = u.shard AND t.id = u.id";
constexpr const char* move_tasks =
    "UPDATE verge_task AS t SET tube = u.tube, kind = u.kind, priority = u.priority, at = u.at, "
    "key = u.key, fields = u.fields, changed = true "
    "FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], "
    "$7::bytea[], $8::bytea[]) AS u (shard, id, tube, kind, priority, at, key, fields) "
    "WHERE t.shard = u.shard AND t.id = u.id";
constexpr const char* remove_tasks =
    "DELETE FROM verge_task AS t USING unnest($1::int8[], $2::int8[]) AS u (shard, id) "
    "WHERE t.shard = u.shard AND t.id = u.id";

constexpr const char* write_tubes =
    "INSERT INTO verge_tube (shard, tube, record) SELECT u.shard, u.tube, u.record "
    "FROM unnest($1::int8[], $2::int8[], $3::bytea[]) AS u (shard, tube, record) "
    "ON CONFLICT (shard, tube) DO UPDATE SET record = excluded.record";
constexpr const char* remove_tubes =
    "DELETE FROM verge_tube AS t USING unnest($1::int8[], $2::int8[]) AS u (shard, tube) "
    "WHERE t.shard = u.shard AND t.tube = u.tube";
constexpr const char* write_notes =
    "INSERT INTO verge_note (shard, name, value) SELECT u.shard, u.name, u.value "
    "FROM unnest($1::int8[], $2::bytea[], $3::bytea[]) AS u (shard, name, value) "
    "ON CONFLICT (shard, name) DO UPDATE SET value = excluded.value";
constexpr const char* remove_notes =
    "DELETE FROM verge_note AS n USING unnest($1::int8[], $2::bytea[]) AS u (shard, name) "
    "WHERE n.shard = u.shard AND n.name = u.name";
constexpr const char* write_marks =
    "INSERT INTO verge_mark (shard, name, value) "
    "SELECT u.shard, convert_from(u.name, 'UTF8'), u.value "
    "FROM unnest($1::int8[], $2::bytea[], $3::int8[]) AS u (shard, name, value) "
    "ON CONFLICT (shard, name) DO UPDATE SET value = excluded.value";

// -------------------------------------------------------------------------------------------------

/// Of the fence.
constexpr std::string_view division_by_zero = "22012";

std::int64_t signed_of(std::uint64_t n) { return static_cast<std::int64_t>(n); }

}  // namespace

bool is_lost_lease(const refusal& why) noexcept { return why.code == division_by_zero; }

bool is_transient(const refusal& why) noexcept {
  return why.code == "40001" || why.code == "40P01";
}

void transaction::tasks::add(std::uint32_t of, const task& t, const place& p,
                             std::string_view record) {
  shard.push_back(of);
  id.push_back(signed_of(t.id));
  tube.push_back(t.tube);
  kind.push_back(static_cast<std::int64_t>(p.kind));
  priority.push_back(p.kind == place_kind::ready ? p.priority : 0);
  at.push_back(p.at);
  key.push_back(t.key);
  fields.push_back(record);
}

std::string_view transaction::record_of(const task& t, const place& p) {
  std::string record;
  records::append_fields(record, t, p);
  return keep(std::move(record));
}

void transaction::add(shard_lease of, const batch& b) {
  leases_.push_back(of.shard);
  epochs_.push_back(of.epoch);
  add_tasks(of.shard, b);
  add_rest(of.shard, b);
}

void transaction::add_tasks(std::uint32_t shard, const batch& b) {
  for (const batch::removal& r : b.removals) {
    removed_.shard.push_back(shard);
    removed_.number.push_back(signed_of(r.id));
  }
  for (const batch::update& u : b.updates) {
    const std::string_view record = record_of(*u.fields, u.after);
    if (u.before == u.after && u.tube_before == u.fields->tube && u.key_before == u.fields->key) {
      changed_.shard.push_back(shard);
      changed_.number.push_back(signed_of(u.fields->id));
      changed_.value.push_back(record);
    } else {
      moved_.add(shard, *u.fields, u.after, record);
    }
  }
  for (const batch::insertion& i : b.insertions) {
    inserted_.add(shard, *i.fields, i.where, record_of(*i.fields, i.where));
    inserted_.body.push_back(i.body);
  }
}

void transaction::add_rest(std::uint32_t shard, const batch& b) {
  for (const tube_record& t : b.tubes) {
    tubes_.shard.push_back(shard);
    tubes_.number.push_back(t.number);
    tubes_.value.push_back(keep(records::tube_value(t)));
  }
  for (const tube_number t : b.tubes_removed) {
    tubes_removed_.shard.push_back(shard);
    tubes_removed_.number.push_back(t);
  }
  for (const note& n : b.notes) {
    notes_.shard.push_back(shard);
    notes_.name.push_back(n.name);
    notes_.value.push_back(n.text);
  }
  for (const std::string& name : b.notes_removed) {
    notes_removed_.shard.push_back(shard);
    notes_removed_.name.push_back(name);
  }
  const auto mark = [&](std::string_view name, std::uint64_t value) {
    marks_.shard.push_back(shard);
    marks_.name.push_back(name);
    marks_.number.push_back(signed_of(value));
  };
  if (b.id_ceiling) mark("ids", *b.id_ceiling);
  if (b.burial_ceiling) mark("burials", *b.burial_ceiling);
}

void transaction::add_fence(std::vector<statement>& all) const {
  if (faulty("lease-by-local-clock")) return;
  all.push_back({faulty("no-epoch-check") ? fence_of_any : fence,
                 parameters().numbers(leases_).numbers(epochs_).number(signed_of(leases_.size()))});
}

std::vector<statement> transaction::check() const {
  std::vector<statement> all;
  add_fence(all);
  return all;
}

/// Removals first: a key may go over to another task.
std::vector<statement> transaction::statements() const {
  std::vector<statement> all;
  const auto add = [&all](const numbers& shards, const char* sql, auto&& with) {
    if (!shards.empty()) all.push_back({sql, with(parameters().numbers(shards))});
  };
  const auto by_number = [](const rows_by_shard& r) {
    return [&r](parameters& p) { return p.numbers(r.number); };
  };
  const auto number_and_value = [](const rows_by_shard& r) {
    return [&r](parameters& p) { return p.numbers(r.number).blobs(r.value); };
  };
  const auto columns = [](parameters& p, const tasks& t) -> parameters& {
    return p.numbers(t.id)
        .numbers(t.tube)
        .numbers(t.kind)
        .numbers(t.priority)
        .numbers(t.at)
        .blobs(t.key)
        .blobs(t.fields);
  };
  add(removed_.shard, remove_tasks, by_number(removed_));
  add(changed_.shard, change_fields, number_and_value(changed_));
  add(moved_.shard, move_tasks, [&](parameters& p) { return columns(p, moved_); });
  add(inserted_.shard, insert_tasks,
      [&](parameters& p) { return columns(p, inserted_).blobs(inserted_.body); });
  add(tubes_.shard, write_tubes, number_and_value(tubes_));
  add(tubes_removed_.shard, remove_tubes, by_number(tubes_removed_));
  add(notes_removed_.shard, remove_notes,
      [&](parameters& p) { return p.blobs(notes_removed_.name); });
  add(notes_.shard, write_notes,
      [&](parameters& p) { return p.blobs(notes_.name).blobs(notes_.value); });
  add(marks_.shard, write_marks,
      [&](parameters& p) { return p.blobs(marks_.name).numbers(marks_.number); });
  add_fence(all);
  return all;
}

}  // namespace verge::server::postgres
