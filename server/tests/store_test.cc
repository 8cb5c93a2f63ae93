// SPDX-License-Identifier: Apache-2.0

// What every store has to do. The same tests run on each.

#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <rocksdb/perf_context.h>
#include <rocksdb/perf_level.h>
#include <verge/runtime.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "postgres/postgres_store.h"
#include "postgres/schema.h"
#include "store/low_water.h"
#include "store/records.h"
#include "store/rocks_database.h"
#include "store/rocks_store.h"
#include "store/store.h"
#include "support/database.h"

namespace {

using namespace verge::server;
using namespace verge::server::test;
namespace fs = std::filesystem;

class scratch {
 public:
  scratch() {
    std::string name = (fs::temp_directory_path() / "verge-store-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;
  ~scratch() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

enum class kind { memory, rocks, postgres };

class a_store : public testing::TestWithParam<kind> {
 protected:
  void SetUp() override {
    if (GetParam() == kind::postgres) {
      if (!database::is_installed()) GTEST_SKIP() << "PostgreSQL is not installed";
      base = &shared_database();
      base->empty();
      postgres::link first(base->options());
      postgres::prepare(first, 4);
      links = std::make_unique<postgres::pool>(base->options());
      commits = std::make_unique<postgres::joint_commits>(*links);
    }
    open();
  }
  void open() {
    it.reset();
    switch (GetParam()) {
      case kind::memory:
        it = make_memory_store();
        break;
      case kind::rocks:
        it = open_rocks_store({.directory = dir / "tasks"});
        break;
      case kind::postgres:
        take_lease(*base, 2, ++epoch);
        it = postgres::open_postgres_store(*commits, {.shard = 2, .epoch = epoch});
        break;
    }
  }
  /// A store in memory cannot be opened again.
  void reopen() {
    if (GetParam() != kind::memory) open();
  }

  static task make(task_id id, tube_number tube = 1) {
    task t;
    t.id = id;
    t.tube = tube;
    t.priority = 5;
    t.due = 1000 + static_cast<wall_time>(id);
    t.created = 900;
    t.ttr = 60;
    return t;
  }
  static place ready_place(const task& t) {
    return {.kind = place_kind::ready, .priority = t.priority, .at = t.due};
  }
  static place delayed_place(const task& t) {
    return {.kind = place_kind::delayed, .priority = 0, .at = t.due};
  }
  void insert(const task& t, const place& p, std::string_view body) {
    batch b;
    b.insertions.push_back({.fields = &t, .where = p, .body = body});
    it->write(b);
  }
  std::vector<task_id> ids(tube_number tube, const position& from, std::size_t limit) {
    std::vector<task_id> found;
    for (const stored_task& s : it->scan(tube, from, limit)) found.push_back(s.fields.id);
    return found;
  }

  scratch dir;
  database* base{nullptr};
  std::unique_ptr<postgres::pool> links;
  std::unique_ptr<postgres::joint_commits> commits;
  std::int64_t epoch{0};
  std::unique_ptr<store> it;
};

TEST_P(a_store, gives_back_what_was_put) {
  task t = make(7);
  t.key = "order-7";
  t.dead_letter = "failed";
  t.max_attempts = 3;
  t.backoff = 77;
  t.token = 0xfedcba9876543210U;
  t.lease_end = -5;
  t.reserves = 4'000'000'000U;
  insert(t, delayed_place(t), std::string("a body\0with a zero", 18));
  reopen();
  const auto s = it->find(7);
  ASSERT_TRUE(s);
  EXPECT_EQ(s->fields.key, "order-7");
  EXPECT_EQ(s->fields.dead_letter, "failed");
  EXPECT_EQ(s->fields.token, t.token);
  EXPECT_EQ(s->fields.lease_end, -5);
  EXPECT_EQ(s->fields.reserves, t.reserves);
  EXPECT_EQ(s->fields.due, t.due);
  EXPECT_EQ(s->where, delayed_place(t));
  EXPECT_FALSE(s->changed);
  EXPECT_EQ(it->body_of(7), std::string("a body\0with a zero", 18));
  EXPECT_EQ(it->find_key(1, "order-7"), 7U);
  EXPECT_FALSE(it->find_key(2, "order-7"));
  EXPECT_FALSE(it->find(8));
}

TEST_P(a_store, scans_in_the_order_of_the_index_from_anywhere) {
  std::vector<task> tasks;
  for (task_id id = 1; id <= 9; ++id) tasks.push_back(make(id, id <= 6 ? 1 : 2));
  tasks[0].priority = 9;
  tasks[1].due = -3;  // before 1970
  tasks[2].priority = 0xffffffff;
  for (const task& t : tasks) insert(t, ready_place(t), "x");
  task later = make(20);
  insert(later, delayed_place(later), "x");
  EXPECT_EQ(ids(1, beginning_of(place_kind::ready), 100), (std::vector<task_id>{2, 4, 5, 6, 1, 3}));
  EXPECT_EQ(ids(1, beginning_of(place_kind::ready), 2), (std::vector<task_id>{2, 4}));
  EXPECT_EQ(ids(1, {.where = ready_place(tasks[4]), .id = 5}, 100),
            (std::vector<task_id>{5, 6, 1, 3}));
  EXPECT_EQ(ids(1, {.where = ready_place(tasks[4]), .id = 6}, 100),
            (std::vector<task_id>{6, 1, 3}));
  EXPECT_EQ(ids(2, beginning_of(place_kind::ready), 100), (std::vector<task_id>{7, 8, 9}));
  EXPECT_EQ(ids(1, beginning_of(place_kind::delayed), 100), (std::vector<task_id>{20}));
  EXPECT_TRUE(ids(1, beginning_of(place_kind::buried), 100).empty());
  EXPECT_TRUE(ids(3, beginning_of(place_kind::ready), 100).empty());
}

TEST_P(a_store, changes_a_task_and_keeps_its_body) {
  task t = make(1);
  insert(t, ready_place(t), "the body");
  const place before = ready_place(t);
  for (int i = 0; i < 3; ++i) {
    const place was = it->find(1)->where;
    t.state = task_state::delayed;
    t.due += 100;
    t.reserves = static_cast<std::uint32_t>(i + 1);
    batch b;
    b.updates.push_back({.fields = &t,
                         .before = was,
                         .after = delayed_place(t),
                         .tube_before = 1,
                         .key_before = {}});
    it->write(b);
    reopen();
  }
  const auto s = it->find(1);
  ASSERT_TRUE(s);
  EXPECT_TRUE(s->changed);
  EXPECT_EQ(s->fields.reserves, 3U);
  EXPECT_EQ(s->where, delayed_place(t));
  EXPECT_EQ(it->body_of(1), "the body");
  EXPECT_TRUE(ids(1, beginning_of(place_kind::ready), 10).empty()) << before.at;
  EXPECT_EQ(ids(1, beginning_of(place_kind::delayed), 10), (std::vector<task_id>{1}));
}

TEST_P(a_store, forgets_a_task_that_is_removed) {
  task t = make(1);
  t.key = "k";
  insert(t, ready_place(t), "x");
  batch change;
  change.updates.push_back({.fields = &t,
                            .before = ready_place(t),
                            .after = ready_place(t),
                            .tube_before = 1,
                            .key_before = t.key});
  it->write(change);
  batch b;
  b.removals.push_back(
      {.id = 1, .tube = 1, .where = ready_place(t), .changed = true, .key = t.key});
  it->write(b);
  reopen();
  EXPECT_FALSE(it->find(1));
  EXPECT_FALSE(it->find_key(1, "k"));
  EXPECT_TRUE(ids(1, beginning_of(place_kind::ready), 10).empty());
}

TEST_P(a_store, lets_a_key_go_over_to_another_task_in_one_batch) {
  task old = make(1);
  old.key = "k";
  insert(old, ready_place(old), "x");
  task next = make(2);
  next.key = "k";
  batch b;
  b.insertions.push_back({.fields = &next, .where = ready_place(next), .body = "y"});
  b.removals.push_back(
      {.id = 1, .tube = 1, .where = ready_place(old), .changed = false, .key = old.key});
  it->write(b);
  reopen();
  EXPECT_EQ(it->find_key(1, "k"), 2U);
}

TEST_P(a_store, finds_many_keys_at_once) {
  task one = make(1);
  one.key = "a";
  insert(one, ready_place(one), "x");
  task two = make(2, 2);
  two.key = std::string("b\0\xff,\"{}\\", 8);
  insert(two, delayed_place(two), "y");
  const std::vector<key_name> wanted{{.tube = 1, .key = "a"},
                                     {.tube = 2, .key = "a"},
                                     {.tube = 2, .key = two.key},
                                     {.tube = 1, .key = "a"},
                                     {.tube = 3, .key = "none"}};
  const key_table found = verge::default_runtime().run(it->find_keys(wanted));
  const key_table expected{{{.tube = 1, .key = "a"}, 1},
                           {{.tube = 2, .key = "a"}, 0},
                           {{.tube = 2, .key = two.key}, 2},
                           {{.tube = 3, .key = "none"}, 0}};
  EXPECT_EQ(found, expected);
}

TEST_P(a_store, moves_a_task_to_another_tube_without_its_key) {
  task t = make(1);
  t.key = "k";
  insert(t, ready_place(t), "x");
  const place before = ready_place(t);
  t.tube = 2;
  t.key.clear();
  batch b;
  b.updates.push_back({.fields = &t,
                       .before = before,
                       .after = ready_place(t),
                       .tube_before = 1,
                       .key_before = "k"});
  it->write(b);
  reopen();
  EXPECT_TRUE(ids(1, beginning_of(place_kind::ready), 10).empty());
  EXPECT_EQ(ids(2, beginning_of(place_kind::ready), 10), (std::vector<task_id>{1}));
  EXPECT_FALSE(it->find_key(1, "k"));
}

TEST_P(a_store, remembers_tubes_and_marks) {
  batch b;
  b.tubes.push_back({.number = 3,
                     .name = "mail",
                     .delayed = 1,
                     .ready = 2,
                     .buried = 3,
                     .urgent = 1,
                     .paused_until = 99,
                     .pause = 50,
                     .due_mark = {.due = -7, .id = 12}});
  b.tubes.push_back({.number = 4, .name = "gone"});
  b.id_ceiling = 1'000'001;
  b.burial_ceiling = 5;
  it->write(b);
  batch later;
  later.tubes_removed.push_back(4);
  it->write(later);
  reopen();
  const recovered r = it->recover();
  ASSERT_EQ(r.tubes.size(), 1U);
  EXPECT_EQ(r.tubes[0].name, "mail");
  EXPECT_EQ(r.tubes[0].ready, 2U);
  EXPECT_EQ(r.tubes[0].paused_until, 99);
  EXPECT_EQ(r.id_ceiling, 1'000'001U);
  EXPECT_EQ(r.burial_ceiling, 5U);
  EXPECT_EQ(r.tubes[0].due_mark, (due_order{.due = -7, .id = 12}));
}

TEST_P(a_store, keeps_notes_in_the_order_of_their_names) {
  batch b;
  b.notes = {{"b", std::string("\0\xff", 2)}, {"a/1", "one"}, {"c", ""}};
  it->write(b);
  b.clear();
  b.notes = {{"a/1", "two"}};
  b.notes_removed = {"c", "never there"};
  it->write(b);
  reopen();
  const std::vector<note> expected{{"a/1", "two"}, {"b", std::string("\0\xff", 2)}};
  EXPECT_EQ(it->recover().notes, expected);
}

TEST_P(a_store, keeps_what_a_task_has_about_pushing) {
  task t = make(7);
  t.bound_to_connection = true;
  t.push = std::make_shared<const push_part>(push_part{.url = "http://x/", .answer = "HTTP 500"});
  insert(t, ready_place(t), "body");
  reopen();
  const auto s = it->find(7);
  ASSERT_TRUE(s && s->fields.push);
  EXPECT_EQ(*s->fields.push, *t.push);
  EXPECT_TRUE(s->fields.bound_to_connection);
  EXPECT_EQ(it->body_of(7), "body");
}

INSTANTIATE_TEST_SUITE_P(
    stores, a_store, testing::Values(kind::memory, kind::rocks, kind::postgres), [](const auto& p) {
      return p.param == kind::memory ? "memory" : p.param == kind::rocks ? "rocks" : "postgres";
    });

TEST(rocks_store, refuses_a_format_that_it_does_not_know) {
  const scratch dir;
  { open_rocks_store({.directory = dir / "tasks"}); }
  {
    rocksdb::DB* db = nullptr;
    ASSERT_TRUE(rocksdb::DB::Open({}, dir / "tasks", &db).ok());
    ASSERT_TRUE(db->Put({}, records::format_key(), records::number_value(99)).ok());
    delete db;
  }
  try {
    open_rocks_store({.directory = dir / "tasks"});
    FAIL() << "it has opened format 99";
  } catch (const store_error& e) {
    EXPECT_NE(std::string(e.what()).find("format 99"), std::string::npos) << e.what();
  }
}

/// What version 1 wrote is a part of what version 2 reads: only the number differs.
TEST(rocks_store, takes_over_the_format_before) {
  const scratch dir;
  const auto set_format = [&](std::uint64_t n, std::string* before) {
    rocksdb::DB* db = nullptr;
    ASSERT_TRUE(rocksdb::DB::Open({}, dir / "tasks", &db).ok());
    ASSERT_TRUE(db->Get({}, records::format_key(), before).ok());
    if (n != 0) {
      ASSERT_TRUE(db->Put({}, records::format_key(), records::number_value(n)).ok());
    }
    delete db;
  };
  { open_rocks_store({.directory = dir / "tasks"}); }
  std::string found;
  set_format(1, &found);
  { open_rocks_store({.directory = dir / "tasks"}); }
  set_format(0, &found);
  EXPECT_EQ(records::parse_number(found), records::format) << "an older version must not open it";
}

TEST(rocks_store, refuses_a_directory_that_another_one_has_open) {
  const scratch dir;
  const auto first = open_rocks_store({.directory = dir / "tasks"});
  try {
    open_rocks_store({.directory = dir / "tasks"});
    FAIL() << "two have it open";
  } catch (const store_error& e) {
    EXPECT_NE(std::string(e.what()).find("another process"), std::string::npos) << e.what();
  }
}

TEST(rocks_store, refuses_the_database_of_another_program) {
  const scratch dir;
  {
    rocksdb::Options o;
    o.create_if_missing = true;
    rocksdb::DB* db = nullptr;
    ASSERT_TRUE(rocksdb::DB::Open(o, dir / "tasks", &db).ok());
    ASSERT_TRUE(db->Put({}, "their key", "their value").ok());
    delete db;
  }
  EXPECT_THROW(open_rocks_store({.directory = dir / "tasks"}), store_error);
}

TEST(rocks_store, copies_itself_while_it_is_open) {
  const scratch dir;
  const auto s = open_rocks_store({.directory = dir / "tasks"});
  task t;
  t.id = 1;
  t.tube = 1;
  batch b;
  b.insertions.push_back({.fields = &t, .where = {.kind = place_kind::ready}, .body = "x"});
  b.tubes.push_back({.number = 1, .name = "default", .ready = 1, .urgent = 1});
  b.id_ceiling = 10;
  s->write(b);
  s->backup(dir / "copy");
  EXPECT_THROW(s->backup(dir / "copy"), store_error) << "there is one already";
  EXPECT_EQ(open_rocks_store({.directory = dir / "copy"})->body_of(1), "x");
}

/// Damages a store that is right, in one way after the other; the check has to find each.
TEST(check, finds_what_is_wrong) {
  using namespace records;
  struct damage {
    const char* what;
    std::function<void(rocksdb::DB&)> does;
    std::uint64_t faults;
  };
  const place at{.kind = place_kind::ready, .priority = 5, .at = 1001};
  const auto put = [](rocksdb::DB& db, const std::string& k, const std::string& v) {
    ASSERT_TRUE(db.Put({}, k, v).ok());
  };
  const auto erase = [](rocksdb::DB& db, const std::string& k) {
    ASSERT_TRUE(db.Delete({}, k).ok());
  };
  const std::vector<damage> all{
      {"nothing", [](rocksdb::DB&) {}, 0},
      {"an index entry is lost", [&](rocksdb::DB& db) { erase(db, index_key(1, at, 1)); }, 3},
      {"an index entry too many",
       [&](rocksdb::DB& db) {
         place other = at;
         other.at = 77;
         put(db, index_key(1, other, 1), "");
       },
       2},
      {"a task is lost", [&](rocksdb::DB& db) { erase(db, task_key(1)); }, 4},
      {"a key is lost", [&](rocksdb::DB& db) { erase(db, key_key(1, "k")); }, 1},
      {"a key that its task does not have",
       [&](rocksdb::DB& db) { put(db, key_key(1, "q"), number_value(1)); }, 1},
      {"a change of a task that does not exist",
       [&](rocksdb::DB& db) {
         std::string value;
         ASSERT_TRUE(db.Get({}, task_key(1), &value).ok());
         put(db, changes_key(9), value);
       },
       1},
      {"a count is wrong",
       [&](rocksdb::DB& db) {
         put(db, tube_key(1), tube_value({.number = 1, .name = "default", .ready = 2}));
       },
       1},
      {"a tube is lost", [&](rocksdb::DB& db) { erase(db, tube_key(1)); }, 1},
      {"a record is cut short", [&](rocksdb::DB& db) { put(db, task_key(1), "\x01"); }, 3},
      {"a key of an unknown kind", [&](rocksdb::DB& db) { put(db, "zzz", ""); }, 1},
      {"an index begins before its low-water mark",
       [&](rocksdb::DB& db) {
         place later = at;
         later.at = 2000;
         put(db, low_water_key(index_prefix(1, place_kind::ready)), index_key(1, later, 1));
       },
       1},
      {"an id above the ceiling",
       [&](rocksdb::DB& db) { put(db, mark_key("ids"), number_value(1)); }, 1},
  };
  for (const damage& d : all) {
    const scratch dir;
    {
      const auto s = open_rocks_store({.directory = dir / "tasks"});
      task t;
      t.id = 1;
      t.tube = 1;
      t.priority = 5;
      t.due = 1001;
      t.key = "k";
      batch b;
      b.insertions.push_back({.fields = &t, .where = at, .body = "x"});
      b.tubes.push_back({.number = 1, .name = "default", .ready = 1, .urgent = 1});
      b.id_ceiling = 10;
      s->write(b);
    }
    {
      rocksdb::DB* db = nullptr;
      ASSERT_TRUE(rocksdb::DB::Open({}, dir / "tasks", &db).ok());
      d.does(*db);
      delete db;
    }
    const check_report r = check_rocks_store(dir / "tasks");
    if (d.faults == 0) {
      EXPECT_EQ(r.fault_count, 0U) << d.what << ": " << (r.faults.empty() ? "" : r.faults[0]);
    } else {
      EXPECT_GT(r.fault_count, 0U) << d.what;
    }
  }
}

// ---- Traps of RocksDB --------------------------------------------------------------------------

/// Removes the tasks of a ready index from its front, as workers do.
void remove_in_order(store& s, const std::vector<task>& tasks, std::size_t from, std::size_t to) {
  for (std::size_t i = from; i < to; i += 100) {
    batch b;
    for (std::size_t n = i; n < std::min(i + 100, to); ++n) {
      b.removals.push_back({.id = tasks[n].id,
                            .tube = 1,
                            .where = {.kind = place_kind::ready, .priority = 0, .at = tasks[n].due},
                            .changed = false,
                            .key = {}});
    }
    s.write(b);
  }
}

/// After a restart the first entry of an index is found without a walk over what was removed.
TEST(tombstones, are_not_walked_over_after_a_restart) {
  const scratch dir;
  constexpr std::size_t count = 50'000;
  std::vector<task> tasks(count);
  const auto insert = [&](store& s, task& t) {
    batch b;
    b.insertions.push_back({.fields = &t,
                            .where = {.kind = place_kind::ready, .priority = 0, .at = t.due},
                            .body = {}});
    s.write(b);
  };
  const rocks_options options{.directory = dir / "tasks", .mode = durability::written};
  {
    const auto s = open_rocks_store(options);
    for (std::size_t i = 0; i < count; ++i) {
      tasks[i].id = i + 1;
      tasks[i].tube = 1;
      tasks[i].due = static_cast<wall_time>(1'000 + i);
      insert(*s, tasks[i]);
    }
  }
  const auto s = open_rocks_store(options);
  remove_in_order(*s, tasks, 0, count - 10);
  // As a crash leaves it: in an orderly end files are merged.
  fs::copy(dir / "tasks", dir / "copy", fs::copy_options::recursive);
  const auto walked = [](store& in) {
    rocksdb::SetPerfLevel(rocksdb::PerfLevel::kEnableCount);
    rocksdb::get_perf_context()->Reset();
    EXPECT_EQ(in.scan(1, beginning_of(place_kind::ready), 20).size(), 10U) << "to the end";
    const auto* const p = rocksdb::get_perf_context();
    return p->internal_delete_skipped_count + p->internal_key_skipped_count;
  };
  const auto copy = open_rocks_store({.directory = dir / "copy", .mode = durability::written});
  EXPECT_LE(walked(*copy), 3 * low_water_marks::removals_between);
  EXPECT_LE(walked(*s), 3 * low_water_marks::removals_between);
  // One that comes before the mark is found, also after another crash.
  task early;
  early.id = count + 1;
  early.tube = 1;
  early.due = 500;
  insert(*copy, early);
  fs::copy(dir / "copy", dir / "again", fs::copy_options::recursive);
  const auto again = open_rocks_store({.directory = dir / "again", .mode = durability::written});
  for (store* const each : {copy.get(), again.get()}) {
    const auto found = each->scan(1, beginning_of(place_kind::ready), 20);
    ASSERT_EQ(found.size(), 11U);
    EXPECT_EQ(found[0].fields.id, early.id);
    EXPECT_EQ(found[1].fields.id, count - 9);
  }
}

/// However much has been put, the logs that the next start has to read are few.
TEST(logs, are_not_kept) {
  const scratch dir;
  const auto s = open_rocks_store(
      {.directory = dir / "tasks", .mode = durability::written, .memtable_bytes = 1U << 20});
  const std::string body(1000, 'x');
  std::uint64_t most = 0;
  for (task_id id = 1; id <= 30'000; ++id) {
    task t;
    t.id = id;
    t.tube = 1;
    batch b;
    b.insertions.push_back({.fields = &t, .where = {.kind = place_kind::ready}, .body = body});
    s->write(b);
    if (id % 1000 != 0) continue;
    std::uint64_t bytes = 0;
    for (const auto& file : fs::directory_iterator(dir / "tasks")) {
      std::error_code gone;
      const std::uint64_t size = file.file_size(gone);
      if (!gone && file.path().extension() == ".log") bytes += size;
    }
    most = std::max(most, bytes);
  }
  EXPECT_LE(most, 8U << 20) << "of 30 MB that were put";
}

/// Every file with its contents and the time when it was written last.
std::map<std::string, std::pair<std::string, fs::file_time_type>> contents_of(
    const std::string& directory) {
  std::map<std::string, std::pair<std::string, fs::file_time_type>> all;
  for (const auto& file : fs::directory_iterator(directory)) {
    std::ifstream in(file.path(), std::ios::binary);
    all[file.path().filename()] = {
        std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()),
        file.last_write_time()};
  }
  return all;
}

/// A directory that a server has open, as a crash leaves it: with a log that ends in zeros.
void make_crashed(const std::string& original, const std::string& copy, std::uint64_t old_format) {
  const auto s = open_rocks_store({.directory = original});
  std::vector<task> tasks(50);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    task& t = tasks[i];
    t.id = i + 1;
    t.tube = static_cast<tube_number>(1 + i);
    t.due = 1001;
    batch b;
    b.insertions.push_back({.fields = &t,
                            .where = {.kind = place_kind::ready, .priority = 0, .at = 1001},
                            .body = "x"});
    b.tubes.push_back({.number = t.tube, .name = std::to_string(t.tube), .ready = 1, .urgent = 1});
    b.id_ceiling = 1000;
    s->write(b);
  }
  if (old_format != 0) {
    auto& db = dynamic_cast<rocks_store&>(*s).db();
    ASSERT_TRUE(db.Put({}, records::format_key(), records::number_value(old_format)).ok());
  }
  fs::copy(original, copy, fs::copy_options::recursive);
}

std::string last_log(const std::string& directory) {
  std::string last;
  for (const auto& file : fs::directory_iterator(directory)) {
    if (file.path().extension() == ".log") last = std::max(last, file.path().string());
  }
  return last;
}

TEST(check, changes_nothing) {
  for (const std::uint64_t old_format : {0U, 2U}) {
    for (const bool torn : {false, true}) {
      const scratch dir;
      make_crashed(dir / "tasks", dir / "copy", old_format);
      if (torn) {
        // The last batch of the log has lost its end.
        const std::string log = last_log(dir / "copy");
        std::ifstream in(log, std::ios::binary);
        const std::string bytes(std::istreambuf_iterator<char>(in), {});
        fs::resize_file(log, bytes.find_last_not_of('\0') - 5);
      }
      const auto before = contents_of(dir / "copy");
      const check_report r = check_rocks_store(dir / "copy");
      const std::uint64_t lost = torn && old_format == 0 ? 1 : 0;
      EXPECT_EQ(r.fault_count, 0U) << r.faults[0];
      EXPECT_EQ(r.tasks, 50U - lost);
      EXPECT_EQ(contents_of(dir / "copy"), before);
      // A server does change it, and finds the same.
      { open_rocks_store({.directory = dir / "copy"}); }
      EXPECT_NE(contents_of(dir / "copy"), before);
      EXPECT_EQ(check_rocks_store(dir / "copy").tasks, 50U - lost);
    }
  }
}

TEST(check, needs_the_directory_for_itself) {
  const scratch dir;
  const auto s = open_rocks_store({.directory = dir / "tasks"});
  try {
    check_rocks_store(dir / "tasks");
    FAIL() << "it reads what is being written";
  } catch (const store_error& e) {
    EXPECT_NE(std::string(e.what()).find("another process"), std::string::npos) << e.what();
  }
}

TEST(records, hold_every_value_of_their_fields) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    // Few bits and many: numbers of all lengths.
    const auto any = [&] { return random() >> (random() % 64); };
    task t;
    t.id = any();
    t.tube = static_cast<tube_number>(any());
    t.state = static_cast<task_state>(random() % 4);
    t.priority = static_cast<std::uint32_t>(any());
    t.due = static_cast<wall_time>(any()) * (random() % 2 == 0 ? 1 : -1);
    t.created = static_cast<wall_time>(any());
    t.delay = static_cast<nanoseconds>(any());
    t.ttr = static_cast<nanoseconds>(any());
    t.token = any();
    t.burial = any();
    t.key = std::string(random() % 200, 'k');
    place p{.kind = static_cast<place_kind>(1 + random() % 3),
            .priority = static_cast<std::uint32_t>(any()),
            .at = static_cast<std::int64_t>(any())};
    std::string bytes;
    records::append_fields(bytes, t, p);
    bytes += "body";
    std::string_view in = bytes;
    const stored_task s = records::take_fields(in);
    EXPECT_EQ(in, "body");
    EXPECT_EQ(s.where, p);
    EXPECT_EQ(s.fields.id, t.id);
    EXPECT_EQ(s.fields.due, t.due);
    EXPECT_EQ(s.fields.created, t.created);
    EXPECT_EQ(s.fields.delay, t.delay);
    EXPECT_EQ(s.fields.token, t.token);
    EXPECT_EQ(s.fields.burial, t.burial);
    EXPECT_EQ(s.fields.key, t.key);
    // Cut short anywhere, it is refused.
    std::string_view cut = std::string_view(bytes).substr(0, random() % (bytes.size() - 4));
    EXPECT_THROW(records::take_fields(cut), store_error);
  }
}

}  // namespace
