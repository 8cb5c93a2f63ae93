// SPDX-License-Identifier: Apache-2.0

#include "postgres_store.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "../store/records.h"

namespace verge::server::postgres {

namespace {

// ---- The statements that read. ------------------------------------------------------------------

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

std::int64_t number(std::uint64_t n) { return static_cast<std::int64_t>(n); }

class postgres_store final : public store {
 public:
  postgres_store(joint_commits& commits, shard_lease lease) : commits_(commits), lease_(lease) {}

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
    guarded([&] { commits_.commit_here(lease_, b); });
  }

  verge::task<> commit(const batch& b) override {
    refuse_if_failed();
    std::exception_ptr failure;
    try {
      co_await commits_.commit(lease_, b);
    } catch (...) {
      failure = std::current_exception();
    }
    if (failure) guarded([&] { std::rethrow_exception(failure); });
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
      if (!is_lost_lease(e)) throw;
      throw store_moved(fmt::format("another server has taken over shard {} from epoch {}",
                                    lease_.shard, lease_.epoch));
    } catch (...) {
      failed_ = true;
      throw;
    }
  }

  /// A read can be repeated, once, on a new connection: the one in the pool may have been lost
  /// since.
  std::vector<rows> ask(const std::vector<statement>& all) {
    refuse_if_failed();
    std::vector<rows> found;
    guarded([&] {
      const pool::loan l = commits_.links().take();
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
    const pool::loan l = commits_.links().take();
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

  joint_commits& commits_;
  const shard_lease lease_;
  bool failed_{false};
};

}  // namespace

std::unique_ptr<store> open_postgres_store(joint_commits& commits, shard_lease lease) {
  return std::make_unique<postgres_store>(commits, lease);
}

}  // namespace verge::server::postgres
