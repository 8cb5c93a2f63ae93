#include "rocks_store.h"

#include <fcntl.h>
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/statistics.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/checkpoint.h>
#include <rocksdb/write_batch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "log_tail.h"
#include "records.h"
#include "rocks_census.h"
#include "zeroed_log.h"

namespace verge::server {

namespace {

using namespace records;

std::string_view view(const rocksdb::Slice& s) { return {s.data(), s.size()}; }

[[noreturn]] void fail(const std::string& doing, const std::string& directory,
                       const rocksdb::Status& s) {
  std::string advice;
  if (s.IsNoSpace()) {
    advice = "the disk is full: make room and start again";
  } else if (s.IsCorruption()) {
    advice = "what is on disk is damaged: restore a backup, or see what `verge check` says";
  } else if (s.IsIOError() && s.ToString().find("lock") != std::string::npos) {
    advice = "another process has it open: end that one first, or choose another directory";
  } else {
    advice = "see that the directory exists, is on a disk that works, and may be written";
  }
  throw store_error(doing + " " + directory + " failed: " + s.ToString() + "; " + advice);
}

/// Makes the directory if it is not there, and sees to it that its name outlasts a loss of power:
/// RocksDB syncs what is in the directory, but not the one that the directory is in.
void make_directory(const std::filesystem::path& path) {
  const auto whole = std::filesystem::absolute(path / ".").lexically_normal().parent_path();
  const auto parent = whole.parent_path();
  const auto failed = [&](const std::string& doing, int error) {
    return store_error(doing + " " + parent.string() +
                       " failed: " + std::generic_category().message(error) +
                       "; see that it is on a disk that works, and may be written");
  };
  if (!std::filesystem::exists(parent)) make_directory(parent);
  if (::mkdir(whole.c_str(), 0755) != 0 && errno != EEXIST)
    throw failed("making a directory in", errno);
  const int fd = ::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // Where it may not be read, another user has created the directory, and before.
  if (fd < 0 && errno == EACCES) return;
  const bool synced = fd >= 0 && ::fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!synced) throw failed("syncing", error);
}

class rocks_store final : public store {
 public:
  explicit rocks_store(const rocks_options& o) : directory_(o.directory) {
    if (!o.must_exist) make_directory(directory_);
    write_.sync = o.mode == durability::synced;
    rocksdb::Options options;
    options.create_if_missing = !o.must_exist;
    options.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
    options.paranoid_checks = true;
    options.write_buffer_size = o.memtable_bytes;
    options.max_write_buffer_number = 3;
    options.max_total_wal_size = 4 * o.memtable_bytes;
    options.level_compaction_dynamic_level_bytes = true;
    options.max_background_jobs = 2;
    options.bytes_per_sync = 1U << 20;
    options.compression = rocksdb::kLZ4Compression;
    options.allow_concurrent_memtable_write = false;  // one thread writes
    options.enable_write_thread_adaptive_yield = false;
    options.max_open_files = 512;
    options.keep_log_file_num = 4;
    options.avoid_flush_during_shutdown = false;
    rocksdb::BlockBasedTableOptions table;
    table.block_cache = rocksdb::NewLRUCache(o.cache_bytes);
    table.cache_index_and_filter_blocks = true;
    table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
    table.format_version = 5;
    options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    options.statistics = rocksdb::CreateDBStatistics();
    options.statistics->set_stats_level(rocksdb::StatsLevel::kExceptHistogramOrTimers);
    statistics_ = options.statistics;

    // Tasks have rising ids, and so have the entries of an index in most loads: the next place in
    // the memtable is the one after the last of its kind.
    options.memtable_insert_with_hint_prefix_extractor.reset(rocksdb::NewCappedPrefixTransform(1));
    if (write_.sync) {
      env_ = make_env_with_zeroed_logs(zeros_written_);
      options.env = env_.get();
    }

    mend();
    rocksdb::DB* db = nullptr;
    if (const auto s = rocksdb::DB::Open(options, directory_, &db); !s.ok()) {
      fail("opening", directory_, s);
    }
    db_.reset(db);
    check_format();
  }

  ~rocks_store() override {
    if (db_ != nullptr && !failed_) static_cast<void>(db_->Close());
  }

  recovered recover() override {
    recovered r;
    r.id_ceiling = mark("ids", 1);
    r.burial_ceiling = mark("burials", 1);
    r.clock_mark = static_cast<wall_time>(mark("clock", 0));
    const std::unique_ptr<rocksdb::Iterator> i(db_->NewIterator(read_));
    for (i->Seek("U"); i->Valid() && i->key().starts_with("U"); i->Next()) {
      r.tubes.push_back(parse_tube(tube_at(view(i->key()), 1), view(i->value())));
    }
    for (i->Seek("N"); i->Valid() && i->key().starts_with("N"); i->Next()) {
      r.notes.push_back({std::string(view(i->key()).substr(1)), std::string(view(i->value()))});
    }
    require(i->status(), "reading");
    return r;
  }

  void write(const batch& b) override {
    if (failed_)
      throw store_error("the store of " + directory_ + " has failed before; start again");
    changes_.Clear();
    // Removals first: a key may go over to another task.
    for (const batch::removal& r : b.removals) remove(r);
    for (const batch::update& u : b.updates) change(u);
    for (const batch::insertion& i : b.insertions) insert(i);
    for (const tube_record& t : b.tubes) put(tube_key(t.number), tube_value(t));
    for (const tube_number n : b.tubes_removed) require_batch(changes_.Delete(tube_key(n)));
    for (const std::string& n : b.notes_removed) require_batch(changes_.Delete(note_key(n)));
    for (const note& n : b.notes) put(note_key(n.name), n.text);
    if (b.id_ceiling) put(mark_key("ids"), number_value(*b.id_ceiling));
    if (b.burial_ceiling) put(mark_key("burials"), number_value(*b.burial_ceiling));
    if (b.clock_mark) {
      put(mark_key("clock"), number_value(static_cast<std::uint64_t>(*b.clock_mark)));
    }
    end_batch(changes_);
    require(db_->Write(write_, &changes_), "writing to");
  }

  std::optional<stored_task> find(task_id id) override {
    rocksdb::PinnableSlice value;
    auto s = db_->Get(read_, db_->DefaultColumnFamily(), changes_key(id), &value);
    const bool changed = s.ok();
    if (s.IsNotFound()) {
      value.Reset();
      s = db_->Get(read_, db_->DefaultColumnFamily(), task_key(id), &value);
      if (s.IsNotFound()) return std::nullopt;
    }
    require(s, "reading");
    std::string_view in = view(value);
    stored_task found = take_fields(in);
    found.changed = changed;
    return found;
  }

  std::string body_of(task_id id) override {
    rocksdb::PinnableSlice value;
    require(db_->Get(read_, db_->DefaultColumnFamily(), task_key(id), &value), "reading");
    std::string_view in = view(value);
    take_fields(in);
    return std::string(in);
  }

  std::optional<task_id> find_key(tube_number tube, std::string_view key) override {
    rocksdb::PinnableSlice value;
    const auto s = db_->Get(read_, db_->DefaultColumnFamily(), key_key(tube, key), &value);
    if (s.IsNotFound()) return std::nullopt;
    require(s, "reading");
    return parse_number(view(value));
  }

  std::vector<stored_task> scan(tube_number tube, const position& first,
                                std::size_t limit) override {
    const std::string prefix = index_prefix(tube, first.where.kind);
    std::vector<task_id> ids;
    {
      const std::unique_ptr<rocksdb::Iterator> i(db_->NewIterator(read_));
      for (i->Seek(index_key(tube, first.where, first.id));
           i->Valid() && i->key().starts_with(prefix) && ids.size() < limit; i->Next()) {
        ids.push_back(id_at(view(i->key()), i->key().size() - 8));
      }
      require(i->status(), "reading");
    }
    std::vector<stored_task> found;
    found.reserve(ids.size());
    for (const task_id id : ids) {
      auto t = find(id);
      if (!t)
        throw store_error("an index names task " + std::to_string(id) +
                          ", which does not exist: run `verge check`");
      found.push_back(std::move(*t));
    }
    return found;
  }

  std::shared_ptr<census> take_census(std::vector<tube_number> tubes,
                                      const census_range& range) override {
    return take_rocks_census(*db_, std::move(tubes), range);
  }

  store_figures figures() override {
    store_figures f;
    f.bytes_written = statistics_->getTickerCount(rocksdb::WAL_FILE_BYTES) +
                      statistics_->getTickerCount(rocksdb::FLUSH_WRITE_BYTES) +
                      statistics_->getTickerCount(rocksdb::COMPACT_WRITE_BYTES) +
                      zeros_written_->load(std::memory_order_relaxed);
    std::uint64_t size = 0;
    if (db_->GetIntProperty(rocksdb::DB::Properties::kTotalSstFilesSize, &size))
      f.disk_bytes = size;
    return f;
  }

  void backup(const std::string& directory) override {
    rocksdb::Checkpoint* made = nullptr;
    if (const auto s = rocksdb::Checkpoint::Create(db_.get(), &made); !s.ok()) {
      fail("copying to", directory, s);
    }
    const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
    if (const auto s = checkpoint->CreateCheckpoint(directory); !s.ok()) {
      fail("copying to", directory, s);
    }
  }

  rocksdb::DB& db() noexcept { return *db_; }

 private:
  /// Under the lock that RocksDB will take: what another process writes is not to be cut. If that
  /// process has it, opening says so.
  void mend() {
    rocksdb::Env* const env = rocksdb::Env::Default();
    rocksdb::FileLock* lock = nullptr;
    if (!env->FileExists(directory_).ok() || !env->LockFile(directory_ + "/LOCK", &lock).ok())
      return;
    const auto unlock = [&](rocksdb::FileLock* l) { env->UnlockFile(l).PermitUncheckedError(); };
    const std::unique_ptr<rocksdb::FileLock, decltype(unlock)> held(lock, unlock);
    mend_log_tails(directory_);
  }

  void check_format() {
    std::string value;
    const auto s = db_->Get(read_, format_key(), &value);
    if (s.IsNotFound()) {
      const std::unique_ptr<rocksdb::Iterator> i(db_->NewIterator(read_));
      i->SeekToFirst();
      if (i->Valid()) {
        throw store_error(directory_ +
                          " is a RocksDB database, but not one of verge: choose another directory");
      }
      return write_format();
    }
    require(s, "reading");
    const std::uint64_t found = parse_number(value);
    if (found < oldest_format || found > format) {
      throw store_error(directory_ + " has format " + std::to_string(found) +
                        ", and this version of verge knows format " + std::to_string(format) +
                        ": use the version of verge that wrote it");
    }
    // From here on an older version must not open it: it would misread what this one writes.
    if (found != format) write_format();
  }

  void write_format() {
    rocksdb::WriteOptions sync;
    sync.sync = true;
    changes_.Clear();
    put(format_key(), number_value(format));
    end_batch(changes_);
    require(db_->Write(sync, &changes_), "writing to");
  }

  std::uint64_t mark(std::string_view name, std::uint64_t otherwise) {
    std::string value;
    const auto s = db_->Get(read_, mark_key(name), &value);
    if (s.IsNotFound()) return otherwise;
    require(s, "reading");
    return parse_number(value);
  }

  void put(const std::string& key, const std::string& value) {
    require_batch(changes_.Put(key, value));
  }

  void insert(const batch::insertion& i) {
    value_.clear();
    append_fields(value_, *i.fields, i.where);
    const rocksdb::Slice parts[] = {value_, {i.body.data(), i.body.size()}};
    key_ = task_key(i.fields->id);
    const rocksdb::Slice key(key_);
    require_batch(changes_.Put(rocksdb::SliceParts(&key, 1), rocksdb::SliceParts(parts, 2)));
    put(index_key(i.fields->tube, i.where, i.fields->id), {});
    if (!i.fields->key.empty()) {
      put(key_key(i.fields->tube, i.fields->key), number_value(i.fields->id));
    }
  }

  void change(const batch::update& u) {
    const task& t = *u.fields;
    value_.clear();
    append_fields(value_, t, u.after);
    put(changes_key(t.id), value_);
    if (u.before != u.after || u.tube_before != t.tube) {
      require_batch(changes_.SingleDelete(index_key(u.tube_before, u.before, t.id)));
      put(index_key(t.tube, u.after, t.id), {});
    }
    if (u.key_before != t.key || u.tube_before != t.tube) {
      if (!u.key_before.empty())
        require_batch(changes_.Delete(key_key(u.tube_before, u.key_before)));
      if (!t.key.empty()) put(key_key(t.tube, t.key), number_value(t.id));
    }
  }

  void remove(const batch::removal& r) {
    require_batch(changes_.SingleDelete(task_key(r.id)));
    require_batch(changes_.SingleDelete(index_key(r.tube, r.where, r.id)));
    if (r.changed) require_batch(changes_.Delete(changes_key(r.id)));
    if (!r.key.empty()) require_batch(changes_.Delete(key_key(r.tube, r.key)));
  }

  /// A batch does not end in zeros, so that one whose end is missing is known in a log that reads
  /// as zeros beyond its end. This is in the log alone.
  void end_batch(rocksdb::WriteBatch& b) { require_batch(b.PutLogData("end")); }

  void require_batch(const rocksdb::Status& s) { require(s, "preparing a write to"); }

  void require(const rocksdb::Status& s, const char* doing) {
    if (s.ok()) return;
    failed_ = true;
    fail(doing, directory_, s);
  }

  std::string directory_;
  std::shared_ptr<std::atomic<std::uint64_t>> zeros_written_{
      std::make_shared<std::atomic<std::uint64_t>>(0)};
  std::unique_ptr<rocksdb::Env> env_;  // outlasts the database
  std::unique_ptr<rocksdb::DB> db_;
  std::shared_ptr<rocksdb::Statistics> statistics_;
  rocksdb::ReadOptions read_;
  rocksdb::WriteOptions write_;
  rocksdb::WriteBatch changes_;
  std::string key_;
  std::string value_;
  bool failed_{false};
};

}  // namespace

std::unique_ptr<store> open_rocks_store(const rocks_options& options) {
  return std::make_unique<rocks_store>(options);
}

check_report check_rocks_store(const std::string& directory) {
  rocks_store opened({.directory = directory, .must_exist = true});
  check_report report;
  const auto fault = [&](std::string text) {
    ++report.fault_count;
    if (report.faults.size() < 100) report.faults.push_back(std::move(text));
  };
  const recovered known = opened.recover();
  struct counts {
    std::uint64_t delayed{0}, ready{0}, buried{0}, urgent{0};
  };
  std::vector<std::pair<tube_record, counts>> tubes;
  for (const tube_record& t : known.tubes) tubes.emplace_back(t, counts{});
  const auto counts_of = [&](tube_number n) -> counts* {
    for (auto& [record, c] : tubes) {
      if (record.number == n) return &c;
    }
    return nullptr;
  };

  rocksdb::ReadOptions read;
  read.verify_checksums = true;
  read.fill_cache = false;
  const auto exists = [&](const std::string& key, std::string* value) {
    const auto s = opened.db().Get(read, key, value);
    if (!s.ok() && !s.IsNotFound()) fault("cannot be read: " + s.ToString());
    return s.ok();
  };
  std::uint64_t indexed = 0;
  std::uint64_t changed = 0;
  const std::unique_ptr<rocksdb::Iterator> i(opened.db().NewIterator(read));
  for (i->SeekToFirst(); i->Valid(); i->Next()) {
    const std::string_view key = view(i->key());
    try {
      std::string value;
      switch (key[0]) {
        case 'T': {
          ++report.tasks;
          const task_id id = id_at(key, 1);
          std::string_view in = view(i->value());
          const stored_task put = take_fields(in);
          report.bodies_bytes += in.size();
          const std::string name = "task " + std::to_string(id);
          const auto now = opened.find(id);
          if (put.fields.id != id || !now || now->fields.id != id) {
            fault(name + ": its record names another task");
            break;
          }
          if (id >= known.id_ceiling) fault(name + " is above the ceiling of ids");
          if (!exists(index_key(now->fields.tube, now->where, id), &value)) {
            fault(name + " has no entry in the index of its place");
          }
          if (!now->fields.key.empty() &&
              (!exists(key_key(now->fields.tube, now->fields.key), &value) ||
               parse_number(value) != id)) {
            fault(name + ": its key does not name it");
          }
          break;
        }
        case 'S': {
          ++changed;
          const task_id id = id_at(key, 1);
          if (!exists(task_key(id), &value)) {
            fault("a change of task " + std::to_string(id) + ", which does not exist");
          }
          break;
        }
        case 'D':
        case 'R':
        case 'B': {
          ++indexed;
          tube_number tube = 0;
          place p;
          task_id id = 0;
          if (!parse_index_key(key, tube, p, id)) {
            fault("an index entry that cannot be read");
            break;
          }
          const auto t = opened.find(id);
          if (!t || t->fields.tube != tube || t->where.kind != p.kind || t->where.at != p.at ||
              (p.kind == place_kind::ready && t->where.priority != p.priority)) {
            fault("an index entry for task " + std::to_string(id) + ", which is elsewhere");
            break;
          }
          counts* c = counts_of(tube);
          if (c == nullptr) {
            fault("task " + std::to_string(id) + " is in tube " + std::to_string(tube) +
                  ", which does not exist");
            break;
          }
          if (p.kind == place_kind::delayed) ++c->delayed;
          if (p.kind == place_kind::ready) ++c->ready;
          if (p.kind == place_kind::buried) ++c->buried;
          if (p.kind == place_kind::ready && p.priority < urgent_below) ++c->urgent;
          break;
        }
        case 'K': {
          const task_id id = parse_number(view(i->value()));
          const auto t = opened.find(id);
          if (!t || key_key(t->fields.tube, t->fields.key) != key) {
            fault("a key names task " + std::to_string(id) + ", which does not have it");
          }
          break;
        }
        case 'F':
        case 'M':
        case 'N':
        case 'U':
          break;
        default:
          fault("a key of an unknown kind");
      }
    } catch (const store_error& e) {
      fault(e.what());
    }
  }
  if (!i->status().ok()) fault("reading stopped: " + i->status().ToString());
  if (indexed != report.tasks) {
    fault(std::to_string(report.tasks) + " tasks, but " + std::to_string(indexed) +
          " index entries");
  }
  if (changed > report.tasks) fault("more changes than tasks");
  for (const auto& [record, c] : tubes) {
    if (record.delayed != c.delayed || record.ready != c.ready || record.buried != c.buried ||
        record.urgent != c.urgent) {
      fault("tube " + record.name + " counts " + std::to_string(record.delayed) + " delayed, " +
            std::to_string(record.ready) + " ready, " + std::to_string(record.buried) +
            " buried, and has " + std::to_string(c.delayed) + ", " + std::to_string(c.ready) +
            ", " + std::to_string(c.buried));
    }
  }
  return report;
}

}  // namespace verge::server
