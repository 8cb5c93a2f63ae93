// SPDX-License-Identifier: Apache-2.0

#include "postgres_store.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "../store/records.h"
#include "fault.h"

namespace verge::server::postgres {

namespace {

// ---- The statements. This is all of SQL that serving tasks needs. -------------------------------

constexpr const char* fence =
    "SELECT 1 / count(*) FROM (SELECT 1 FROM verge_shard "
    "WHERE shard = $1::int8 AND epoch = $2::int8 AND expires > now() FOR SHARE) AS held";

/// For a test of the checker: any lease will do.
constexpr const char* fence_of_any =
    "SELECT 1 / count(*) FROM (SELECT 1 FROM verge_shard "
    "WHERE shard = $1::int8 AND $2::int8 >= 0 AND expires > now() FOR SHARE) AS held";

constexpr const char* insert_tasks =
    "INSERT INTO verge_task (shard, id, tube, kind, priority, at, key, fields, body) "
    "SELECT $1::int8, u.id, u.tube, u.kind, u.priority, u.at, u.key, u.fields, u.body "
    "FROM unnest($2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::bytea[], "
    "$8::bytea[], $9::bytea[]) AS u (id, tube, kind, priority, at, key, fields, body)";

/// Columns that an index has are named only where they change: then the update is not HOT.
constexpr const char* change_fields =
    "UPDATE verge_task AS t SET fields = u.fields, changed = true "
    "FROM unnest($2::int8[], $3::bytea[]) AS u (id, fields) "
    "WHERE t.shard = $1::int8 AND t.id = u.id";
constexpr const char* move_tasks =
    "UPDATE verge_task AS t SET tube = u.tube, kind = u.kind, priority = u.priority, at = u.at, "
    "key = u.key, fields = u.fields, changed = true "
    "FROM unnest($2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::bytea[], "
    "$8::bytea[]) AS u (id, tube, kind, priority, at, key, fields) "
    "WHERE t.shard = $1::int8 AND t.id = u.id";
constexpr const char* remove_tasks =
    "DELETE FROM verge_task WHERE shard = $1::int8 AND id = ANY ($2::int8[])";

constexpr const char* write_tubes =
    "INSERT INTO verge_tube (shard, tube, record) SELECT $1::int8, u.tube, u.record "
    "FROM unnest($2::int8[], $3::bytea[]) AS u (tube, record) "
    "ON CONFLICT (shard, tube) DO UPDATE SET record = excluded.record";
constexpr const char* remove_tubes =
    "DELETE FROM verge_tube WHERE shard = $1::int8 AND tube = ANY ($2::int8[])";
constexpr const char* write_notes =
    "INSERT INTO verge_note (shard, name, value) SELECT $1::int8, u.name, u.value "
    "FROM unnest($2::bytea[], $3::bytea[]) AS u (name, value) "
    "ON CONFLICT (shard, name) DO UPDATE SET value = excluded.value";
constexpr const char* remove_notes =
    "DELETE FROM verge_note WHERE shard = $1::int8 AND name = ANY ($2::bytea[])";
constexpr const char* write_mark =
    "INSERT INTO verge_mark (shard, name, value) "
    "VALUES ($1::int8, convert_from($2::bytea, 'UTF8'), $3::int8) "
    "ON CONFLICT (shard, name) DO UPDATE SET value = excluded.value";

constexpr const char* read_marks =
    "SELECT name::bytea, value FROM verge_mark WHERE shard = $1::int8";
constexpr const char* read_tubes =
    "SELECT tube, record FROM verge_tube WHERE shard = $1::int8 ORDER BY tube";
constexpr const char* read_notes =
    "SELECT name, value FROM verge_note WHERE shard = $1::int8 ORDER BY name";
constexpr const char* read_task =
    "SELECT fields, changed::int4::int8 FROM verge_task WHERE shard = $1::int8 AND id = $2::int8";
constexpr const char* read_body =
    "SELECT body FROM verge_task WHERE shard = $1::int8 AND id = $2::int8";
constexpr const char* read_key =
    "SELECT id FROM verge_task WHERE shard = $1::int8 AND tube = $2::int8 AND key = $3::bytea "
    "AND key <> ''::bytea";

constexpr const char* read_keys =
    "SELECT t.tube, t.key, t.id FROM unnest($2::int8[], $3::bytea[]) AS u (tube, key) "
    "JOIN verge_task AS t ON t.shard = $1::int8 AND t.tube = u.tube AND t.key = u.key "
    "AND t.key <> ''::bytea";

constexpr const char* scan_delayed =
    "SELECT fields, changed::int4::int8 FROM verge_task WHERE shard = $1::int8 AND tube = $2::int8 "
    "AND kind = 1 AND (at, id) >= ($3::int8, $4::int8) ORDER BY at, id LIMIT $5::int8";
constexpr const char* scan_ready =
    "SELECT fields, changed::int4::int8 FROM verge_task WHERE shard = $1::int8 AND tube = $2::int8 "
    "AND kind = 2 AND (priority, at, id) >= ($3::int8, $4::int8, $5::int8) "
    "ORDER BY priority, at, id LIMIT $6::int8";
constexpr const char* scan_buried =
    "SELECT fields, changed::int4::int8 FROM verge_task WHERE shard = $1::int8 AND tube = $2::int8 "
    "AND kind = 3 AND (at, id) >= ($3::int8, $4::int8) ORDER BY at, id LIMIT $5::int8";

// -------------------------------------------------------------------------------------------------

/// Of the fence: the division by the number of leases that are ours.
constexpr std::string_view division_by_zero = "22012";
/// A transaction that is to be tried again.
bool is_transient(const std::string& code) { return code == "40001" || code == "40P01"; }
constexpr int most_attempts = 5;

std::int64_t number(std::uint64_t n) { return static_cast<std::int64_t>(n); }

class postgres_store final : public store {
 public:
  postgres_store(pool& links, shard_lease lease) : links_(links), lease_(lease) {}

  recovered recover() override {
    const auto found = ask({{read_marks, mine()}, {read_tubes, mine()}, {read_notes, mine()}});
    recovered r;
    for (int i = 0; i < found[0].size(); ++i) {
      const std::int64_t value = found[0].number(i, 1);
      if (found[0].at(i, 0) == "ids") r.id_ceiling = static_cast<task_id>(value);
      if (found[0].at(i, 0) == "burials") r.burial_ceiling = static_cast<std::uint64_t>(value);
    }
    for (int i = 0; i < found[1].size(); ++i) {
      r.tubes.push_back(
          records::parse_tube(static_cast<tube_number>(found[1].number(i, 0)), found[1].at(i, 1)));
    }
    for (int i = 0; i < found[2].size(); ++i) {
      r.notes.push_back({std::string(found[2].at(i, 0)), std::string(found[2].at(i, 1))});
    }
    return r;
  }

  void write(const batch& b) override {
    refuse_if_failed();
    std::vector<std::string> kept;
    const auto all = statements_of(b, kept);
    guarded([&] {
      const pool::loan l = links_.take();
      retried([&] { static_cast<void>(l->run_here(all)); });
    });
  }

  verge::task<> commit(const batch& b) override {
    refuse_if_failed();
    std::vector<std::string> kept;
    const auto all = statements_of(b, kept);
    const pool::loan l = links_.take();
    for (int attempt = 1;; ++attempt) {
      std::exception_ptr failure;
      try {
        static_cast<void>(co_await l->run(all));
        co_return;
      } catch (const refusal& e) {
        if (is_transient(e.code) && attempt < most_attempts) continue;
        failure = std::current_exception();
      } catch (...) {
        failure = std::current_exception();
      }
      guarded([&] { std::rethrow_exception(failure); });
    }
  }

  std::optional<stored_task> find(task_id id) override {
    const rows found = ask({{read_task, mine().number(number(id))}}).front();
    if (found.size() == 0) return std::nullopt;
    return task_at(found, 0);
  }

  std::string body_of(task_id id) override {
    const rows found = ask({{read_body, mine().number(number(id))}}).front();
    if (found.size() == 0) {
      throw store_error(fmt::format("task {} has no body in the database any more", id));
    }
    return std::string(found.at(0, 0));
  }

  std::optional<task_id> find_key(tube_number tube, std::string_view key) override {
    const rows found = ask({{read_key, mine().number(tube).bytes(key)}}).front();
    if (found.size() == 0) return std::nullopt;
    return static_cast<task_id>(found.number(0, 0));
  }

  bool is_remote() const noexcept override { return true; }

  verge::task<key_table> find_keys(const std::vector<key_name>& which) override {
    refuse_if_failed();
    key_table table;
    std::vector<std::int64_t> tubes;
    std::vector<std::string_view> keys;
    for (const key_name& k : which) {
      if (!table.emplace(k, 0).second) continue;
      tubes.push_back(k.tube);
      keys.push_back(k.key);
    }
    std::vector<statement> all;
    all.push_back({read_keys, mine().numbers(tubes).blobs(keys)});
    const std::vector<rows> found = co_await ask_suspended(all);
    for (int i = 0; i < found[0].size(); ++i) {
      const key_name k{.tube = static_cast<tube_number>(found[0].number(i, 0)),
                       .key = std::string(found[0].at(i, 1))};
      table[k] = static_cast<task_id>(found[0].number(i, 2));
    }
    co_return table;
  }

  std::vector<stored_task> scan(tube_number tube, const position& first,
                                std::size_t limit) override {
    parameters p = mine().number(tube);
    const char* sql = scan_delayed;
    if (first.where.kind == place_kind::ready) {
      sql = scan_ready;
      p.number(first.where.priority);
    } else if (first.where.kind == place_kind::buried) {
      sql = scan_buried;
    }
    p.number(first.where.at).number(number(first.id)).number(number(limit));
    const rows found = ask({{sql, std::move(p)}}).front();
    std::vector<stored_task> all;
    all.reserve(static_cast<std::size_t>(found.size()));
    for (int i = 0; i < found.size(); ++i) all.push_back(task_at(found, i));
    return all;
  }

  store_figures figures() override { return {}; }

  void backup(const std::string&) override {
    throw store_error(
        "the tasks are in a database: back that up, with pg_dump or pg_basebackup, or copy them to "
        "a directory with `verge move`");
  }

 private:
  parameters mine() const { return parameters().number(lease_.shard); }

  static stored_task task_at(const rows& found, int row) {
    std::string_view in = found.at(row, 0);
    stored_task s = records::take_fields(in);
    s.changed = found.number(row, 1) != 0;
    return s;
  }

  void refuse_if_failed() const {
    if (failed_) throw store_error("the store has failed before: it is to be opened again");
  }

  /// After a failure nothing more is done: memory may be ahead of the database.
  template <class F>
  void guarded(F&& f) {
    try {
      f();
    } catch (const refusal& e) {
      failed_ = true;
      if (e.code != division_by_zero) throw;
      throw store_moved(fmt::format("another server has taken over shard {} from epoch {}",
                                    lease_.shard, lease_.epoch));
    } catch (...) {
      failed_ = true;
      throw;
    }
  }

  template <class F>
  static void retried(F&& f) {
    for (int attempt = 1;; ++attempt) {
      try {
        return f();
      } catch (const refusal& e) {
        if (!is_transient(e.code) || attempt == most_attempts) throw;
      }
    }
  }

  /// A read can be repeated, once, on a new connection: the one in the pool may have been lost
  /// since.
  std::vector<rows> ask(const std::vector<statement>& all) {
    refuse_if_failed();
    std::vector<rows> found;
    guarded([&] {
      const pool::loan l = links_.take();
      try {
        found = l->run_here(all);
      } catch (const link_error&) {
        found = l->run_here(all);
      }
    });
    return found;
  }

  /// The same for a task, which is suspended.
  verge::task<std::vector<rows>> ask_suspended(const std::vector<statement>& all) {
    const pool::loan l = links_.take();
    std::exception_ptr failure;
    for (int attempt = 1; attempt <= 2; ++attempt) {
      try {
        std::vector<rows> found = co_await l->run(all);
        co_return found;
      } catch (const link_error&) {
        failure = std::current_exception();
      }
    }
    guarded([&] { std::rethrow_exception(failure); });
    co_return std::vector<rows>();
  }

  /// Removals first: a key may go over to another task.
  std::vector<statement> statements_of(const batch& b, std::vector<std::string>& kept) {
    std::vector<statement> all;
    if (faulty("no-epoch-check")) {
      all.push_back({fence_of_any, mine().number(lease_.epoch)});
    } else if (!faulty("lease-by-local-clock")) {
      all.push_back({fence, mine().number(lease_.epoch)});
    }
    if (!b.removals.empty()) {
      std::vector<std::int64_t> ids;
      for (const batch::removal& r : b.removals) ids.push_back(number(r.id));
      all.push_back({remove_tasks, mine().numbers(ids)});
    }
    kept.reserve(b.updates.size() + b.insertions.size() + b.tubes.size());
    add_updates(b, kept, all);
    add_insertions(b, kept, all);
    add_tubes(b, kept, all);
    add_notes(b, all);
    const auto mark = [&](std::string_view name, std::int64_t value) {
      all.push_back({write_mark, mine().bytes(name).number(value)});
    };
    if (b.id_ceiling) mark("ids", number(*b.id_ceiling));
    if (b.burial_ceiling) mark("burials", number(*b.burial_ceiling));
    return all;
  }

  struct columns {
    std::vector<std::int64_t> id, tube, kind, priority, at;
    std::vector<std::string_view> key, fields, body;

    void add(const task& t, const place& p, std::string_view record) {
      id.push_back(number(t.id));
      tube.push_back(t.tube);
      kind.push_back(static_cast<std::int64_t>(p.kind));
      priority.push_back(p.kind == place_kind::ready ? p.priority : 0);
      at.push_back(p.at);
      key.push_back(t.key);
      fields.push_back(record);
    }
  };

  static std::string_view record_of(const task& t, const place& p, std::vector<std::string>& kept) {
    records::append_fields(kept.emplace_back(), t, p);
    return kept.back();
  }

  void add_updates(const batch& b, std::vector<std::string>& kept, std::vector<statement>& all) {
    std::vector<std::int64_t> ids;
    std::vector<std::string_view> fields;
    columns moved;
    for (const batch::update& u : b.updates) {
      const std::string_view record = record_of(*u.fields, u.after, kept);
      if (u.before == u.after && u.tube_before == u.fields->tube && u.key_before == u.fields->key) {
        ids.push_back(number(u.fields->id));
        fields.push_back(record);
      } else {
        moved.add(*u.fields, u.after, record);
      }
    }
    if (!ids.empty()) all.push_back({change_fields, mine().numbers(ids).blobs(fields)});
    if (!moved.id.empty()) {
      all.push_back({move_tasks, mine()
                                     .numbers(moved.id)
                                     .numbers(moved.tube)
                                     .numbers(moved.kind)
                                     .numbers(moved.priority)
                                     .numbers(moved.at)
                                     .blobs(moved.key)
                                     .blobs(moved.fields)});
    }
  }

  void add_insertions(const batch& b, std::vector<std::string>& kept, std::vector<statement>& all) {
    if (b.insertions.empty()) return;
    columns c;
    for (const batch::insertion& i : b.insertions) {
      c.add(*i.fields, i.where, record_of(*i.fields, i.where, kept));
      c.body.push_back(i.body);
    }
    all.push_back({insert_tasks, mine()
                                     .numbers(c.id)
                                     .numbers(c.tube)
                                     .numbers(c.kind)
                                     .numbers(c.priority)
                                     .numbers(c.at)
                                     .blobs(c.key)
                                     .blobs(c.fields)
                                     .blobs(c.body)});
  }

  void add_tubes(const batch& b, std::vector<std::string>& kept, std::vector<statement>& all) {
    if (!b.tubes.empty()) {
      std::vector<std::int64_t> numbers;
      std::vector<std::string_view> values;
      for (const tube_record& t : b.tubes) {
        numbers.push_back(t.number);
        values.push_back(kept.emplace_back(records::tube_value(t)));
      }
      all.push_back({write_tubes, mine().numbers(numbers).blobs(values)});
    }
    if (!b.tubes_removed.empty()) {
      all.push_back(
          {remove_tubes, mine().numbers({b.tubes_removed.begin(), b.tubes_removed.end()})});
    }
  }

  void add_notes(const batch& b, std::vector<statement>& all) {
    if (!b.notes_removed.empty()) {
      all.push_back({remove_notes, mine().blobs({b.notes_removed.begin(), b.notes_removed.end()})});
    }
    if (b.notes.empty()) return;
    std::vector<std::string_view> names;
    std::vector<std::string_view> texts;
    for (const note& n : b.notes) {
      names.push_back(n.name);
      texts.push_back(n.text);
    }
    all.push_back({write_notes, mine().blobs(names).blobs(texts)});
  }

  pool& links_;
  const shard_lease lease_;
  bool failed_{false};
};

}  // namespace

std::unique_ptr<store> open_postgres_store(pool& links, shard_lease lease) {
  return std::make_unique<postgres_store>(links, lease);
}

}  // namespace verge::server::postgres
