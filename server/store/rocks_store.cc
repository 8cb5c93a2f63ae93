// SPDX-License-Identifier: Apache-2.0

#include "rocks_store.h"

#include <fcntl.h>
#include <rocksdb/cache.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/checkpoint.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "log_env.h"
#include "log_tail.h"
#include "records.h"
#include "rocks_census.h"
#include "rocks_database.h"
#include "zeroed_log.h"

namespace verge::server {

namespace {

using namespace records;

store_error failed(const std::string& doing, const std::filesystem::path& path, int error) {
  return store_error(doing + " " + path.string() +
                     " failed: " + std::generic_category().message(error) +
                     "; see that it is on a disk that works, and may be written");
}

/// Syncs the names in a directory. False if it may not be read.
bool sync_directory(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 && errno == EACCES) return false;
  const bool synced = fd >= 0 && ::fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!synced) throw failed("syncing", path, error);
  return true;
}

/// Makes the directory if it is not there, and sees to it that its name outlasts a loss of power:
/// RocksDB syncs what is in the directory, but not the one that the directory is in.
void make_directory(const std::filesystem::path& path) {
  const auto whole = std::filesystem::absolute(path / ".").lexically_normal().parent_path();
  const auto parent = whole.parent_path();
  if (!std::filesystem::exists(parent)) make_directory(parent);
  if (::mkdir(whole.c_str(), 0755) != 0 && errno != EEXIST) {
    throw failed("making a directory in", parent, errno);
  }
  // Where it may not be read, another user has created the directory, and before.
  static_cast<void>(sync_directory(parent));
}

/// A file in the directory while batches may not have been synced one by one (log_tail.h).
std::filesystem::path unsynced_mark(const std::string& directory) {
  return std::filesystem::path(directory) / "UNSYNCED";
}

void set_unsynced(const std::string& directory, bool on) {
  const auto mark = unsynced_mark(directory);
  if (std::filesystem::exists(mark) == on) return;
  if (on) {
    const int fd = ::open(mark.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) throw failed("making a file in", directory, errno);
    ::close(fd);
  } else if (::unlink(mark.c_str()) != 0) {
    throw failed("removing a file from", directory, errno);
  }
  static_cast<void>(sync_directory(directory));
}

/// The lock that RocksDB takes when it opens a directory to write.
class directory_lock {
 public:
  /// Nothing is locked if there is nothing to lock, or if another process has it: see status().
  explicit directory_lock(const std::string& directory) {
    rocksdb::Env* const env = rocksdb::Env::Default();
    if (env->FileExists(directory).ok()) status_ = env->LockFile(directory + "/LOCK", &lock_);
  }
  directory_lock(const directory_lock&) = delete;
  directory_lock& operator=(const directory_lock&) = delete;
  ~directory_lock() {
    if (lock_ != nullptr) rocksdb::Env::Default()->UnlockFile(lock_).PermitUncheckedError();
  }
  bool is_held() const noexcept { return lock_ != nullptr; }
  const rocksdb::Status& status() const noexcept { return status_; }

 private:
  rocksdb::FileLock* lock_{nullptr};
  rocksdb::Status status_;
};

/// RocksDB's own messages, to nowhere: the default is a file in the directory.
class silent_logger final : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char*, va_list) override {}
};

}  // namespace

void fail_with(const std::string& doing, const std::string& directory, const rocksdb::Status& s) {
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

// ---- Opening ------------------------------------------------------------------------------------

rocks_store::rocks_store(const rocks_options& o, access how) : directory_(o.directory) {
  if (how == access::write) {
    open_to_write(o);
  } else {
    open_to_read(o);
  }
  check_format(how);
  fronts_.load(*db_, read_);
}

rocks_store::~rocks_store() {
  if (db_ != nullptr && !failed_) static_cast<void>(db_->Close());
}

rocksdb::Options rocks_store::options_for(const rocks_options& o) {
  rocksdb::Options options;
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
  // In parts: a whole filter of a large file is larger than a shard of the cache, so that it would
  // be read again for each task that is looked for.
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  table.partition_filters = true;
  table.index_type = rocksdb::BlockBasedTableOptions::kTwoLevelIndexSearch;
  table.metadata_block_size = 4096;
  table.pin_top_level_index_and_filter = true;
  // table_check.cc knows this version and this checksum, and refuses all others.
  table.format_version = 5;
  table.checksum = rocksdb::kXXH3;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  options.statistics = rocksdb::CreateDBStatistics();
  options.statistics->set_stats_level(rocksdb::StatsLevel::kExceptHistogramOrTimers);
  statistics_ = options.statistics;
  // Tasks have rising ids, and so have the entries of an index in most loads: the next place in
  // the memtable is the one after the last of its kind.
  options.memtable_insert_with_hint_prefix_extractor.reset(rocksdb::NewCappedPrefixTransform(1));
  return options;
}

void rocks_store::open_to_write(const rocks_options& o) {
  if (!o.must_exist) make_directory(directory_);
  write_.sync = o.mode == durability::synced;
  rocksdb::Options options = options_for(o);
  options.create_if_missing = !o.must_exist;
  env_ = write_.sync ? make_env_with_zeroed_logs(zeros_written_) : make_env_that_syncs_old_logs();
  options.env = env_.get();
  if (!write_.sync) options.wal_bytes_per_sync = 1U << 20;
  {
    // Logs are mended under the lock that RocksDB will take: what another process writes is not to
    // be cut. If that process has it, opening says so.
    const directory_lock held(directory_);
    if (held.is_held()) {
      const bool unsynced = std::filesystem::exists(unsynced_mark(directory_));
      const std::vector<log_cut> cuts = examine_log_tails(directory_, unsynced);
      cut_logs(cuts);
      for (const log_cut& c : cuts) {
        if (!unsynced || c.dropped == 0 || !o.notice) continue;
        o.notice(std::to_string(c.dropped) + " bytes at the end of " + c.path +
                 " were not on disk when the power was lost: what was written last is lost, as "
                 "--durability=written allows");
      }
      if (!write_.sync) set_unsynced(directory_, true);
    }
  }
  rocksdb::DB* db = nullptr;
  if (const auto s = rocksdb::DB::Open(options, directory_, &db); !s.ok()) {
    fail_with("opening", directory_, s);
  }
  db_.reset(db);
  // What was in logs is in other files now, and these are synced.
  if (write_.sync) set_unsynced(directory_, false);
}

void rocks_store::open_to_read(const rocks_options& o) {
  rocksdb::Options options = options_for(o);
  options.info_log = std::make_shared<silent_logger>();
  if (std::filesystem::exists(directory_ + "/LOCK")) {
    lock_ = std::make_shared<directory_lock>(directory_);
    const auto& held = *std::static_pointer_cast<directory_lock>(lock_);
    // On a file system that cannot be written, no other process writes.
    const bool is_read_only = ::access(directory_.c_str(), W_OK) != 0 && errno == EROFS;
    if (!held.is_held() && !is_read_only) fail_with("opening", directory_, held.status());
  }
  env_ = make_env_with_cut_logs(
      examine_log_tails(directory_, std::filesystem::exists(unsynced_mark(directory_))));
  options.env = env_.get();
  rocksdb::DB* db = nullptr;
  if (const auto s = rocksdb::DB::OpenForReadOnly(options, directory_, &db); !s.ok()) {
    fail_with("opening", directory_, s);
  }
  db_.reset(db);
}

void rocks_store::check_format(access how) {
  std::string value;
  const auto s = db_->Get(read_, format_key(), &value);
  if (s.IsNotFound()) {
    const std::unique_ptr<rocksdb::Iterator> i(db_->NewIterator(read_));
    i->SeekToFirst();
    if (i->Valid()) {
      throw store_error(directory_ +
                        " is a RocksDB database, but not one of verge: choose another directory");
    }
    if (how == access::write) write_format();
    return;
  }
  require(s, "reading");
  const std::uint64_t found = parse_number(value);
  if (found < oldest_format || found > format) {
    throw store_error(directory_ + " has format " + std::to_string(found) +
                      ", and this version of verge knows format " + std::to_string(format) +
                      ": use the version of verge that wrote it");
  }
  // From here on an older version must not open it: it would misread what this one writes.
  if (found != format && how == access::write) write_format();
}

void rocks_store::write_format() {
  rocksdb::WriteOptions sync;
  sync.sync = true;
  changes_.Clear();
  put(format_key(), number_value(format));
  end_batch(changes_);
  require(db_->Write(sync, &changes_), "writing to");
}

// ---- Reading ------------------------------------------------------------------------------------

recovered rocks_store::recover() {
  recovered r;
  r.id_ceiling = mark("ids", 1);
  r.burial_ceiling = mark("burials", 1);
  const std::unique_ptr<rocksdb::Iterator> i(db_->NewIterator(read_));
  for (i->Seek("U"); i->Valid() && i->key().starts_with("U"); i->Next()) {
    r.tubes.push_back(parse_tube(tube_at(bytes_of(i->key()), 1), bytes_of(i->value())));
  }
  for (i->Seek("N"); i->Valid() && i->key().starts_with("N"); i->Next()) {
    r.notes.push_back(
        {std::string(bytes_of(i->key()).substr(1)), std::string(bytes_of(i->value()))});
  }
  require(i->status(), "reading");
  return r;
}

std::optional<stored_task> rocks_store::find(task_id id) {
  rocksdb::PinnableSlice value;
  auto s = db_->Get(read_, db_->DefaultColumnFamily(), changes_key(id), &value);
  const bool changed = s.ok();
  if (s.IsNotFound()) {
    value.Reset();
    s = db_->Get(read_, db_->DefaultColumnFamily(), task_key(id), &value);
    if (s.IsNotFound()) return std::nullopt;
  }
  require(s, "reading");
  std::string_view in = bytes_of(value);
  stored_task found = take_fields(in);
  found.changed = changed;
  return found;
}

std::string rocks_store::body_of(task_id id) {
  rocksdb::PinnableSlice value;
  require(db_->Get(read_, db_->DefaultColumnFamily(), task_key(id), &value), "reading");
  std::string_view in = bytes_of(value);
  take_fields(in);
  return std::string(in);
}

std::optional<task_id> rocks_store::find_key(tube_number tube, std::string_view key) {
  rocksdb::PinnableSlice value;
  const auto s = db_->Get(read_, db_->DefaultColumnFamily(), key_key(tube, key), &value);
  if (s.IsNotFound()) return std::nullopt;
  require(s, "reading");
  return parse_number(bytes_of(value));
}

std::vector<stored_task> rocks_store::scan(tube_number tube, const position& first,
                                           std::size_t limit) {
  // An iterator that comes to the end of the index must not look for the next key that there is:
  // behind it are removed tasks.
  const std::string end = end_of_index(tube, first.where.kind);
  const rocksdb::Slice bound(end);
  rocksdb::ReadOptions within = read_;
  within.iterate_upper_bound = &bound;
  std::vector<task_id> ids;
  {
    const std::unique_ptr<rocksdb::Iterator> i(db_->NewIterator(within));
    i->Seek(fronts_.from(index_key(tube, first.where, first.id)));
    for (; i->Valid(); i->Next()) {
      ids.push_back(id_at(bytes_of(i->key()), i->key().size() - 8));
      if (ids.size() >= limit) break;
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

std::shared_ptr<census> rocks_store::take_census(std::vector<tube_number> tubes,
                                                 const census_range& range) {
  return take_rocks_census(*db_, std::move(tubes), range);
}

store_figures rocks_store::figures() {
  store_figures f;
  f.bytes_written = statistics_->getTickerCount(rocksdb::WAL_FILE_BYTES) +
                    statistics_->getTickerCount(rocksdb::FLUSH_WRITE_BYTES) +
                    statistics_->getTickerCount(rocksdb::COMPACT_WRITE_BYTES) +
                    zeros_written_->load(std::memory_order_relaxed);
  std::uint64_t size = 0;
  if (db_->GetIntProperty(rocksdb::DB::Properties::kTotalSstFilesSize, &size)) f.disk_bytes = size;
  return f;
}

void rocks_store::backup(const std::string& directory) {
  rocksdb::Checkpoint* made = nullptr;
  if (const auto s = rocksdb::Checkpoint::Create(db_.get(), &made); !s.ok()) {
    fail_with("copying to", directory, s);
  }
  const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
  if (const auto s = checkpoint->CreateCheckpoint(directory); !s.ok()) {
    fail_with("copying to", directory, s);
  }
}

std::uint64_t rocks_store::mark(std::string_view name, std::uint64_t otherwise) {
  std::string value;
  const auto s = db_->Get(read_, mark_key(name), &value);
  if (s.IsNotFound()) return otherwise;
  require(s, "reading");
  return parse_number(value);
}

// ---- Writing ------------------------------------------------------------------------------------

void rocks_store::write(const batch& b) {
  if (failed_) throw store_error("the store of " + directory_ + " has failed before; start again");
  changes_.Clear();
  // Removals first: a key may go over to another task.
  for (const batch::removal& r : b.removals) remove(r);
  for (const batch::update& u : b.updates) change(u);
  for (const batch::insertion& i : b.insertions) insert(i);
  for (const tube_record& t : b.tubes) put(tube_key(t.number), tube_value(t));
  for (const tube_number n : b.tubes_removed) {
    require_batch(changes_.Delete(tube_key(n)));
    fronts_.will_remove_tube(n);
  }
  for (const std::string& n : b.notes_removed) require_batch(changes_.Delete(note_key(n)));
  for (const note& n : b.notes) put(note_key(n.name), n.text);
  if (b.id_ceiling) put(mark_key("ids"), number_value(*b.id_ceiling));
  if (b.burial_ceiling) put(mark_key("burials"), number_value(*b.burial_ceiling));
  fronts_.add_to(changes_);
  end_batch(changes_);
  // Ids are never used again, also if what was only written is lost.
  rocksdb::WriteOptions how = write_;
  how.sync = how.sync || b.id_ceiling.has_value();
  require(db_->Write(how, &changes_), "writing to");
  fronts_.rise(*db_, read_);
}

void rocks_store::put_entry(const std::string& key) {
  fronts_.will_put(key);
  put(key, {});
}

void rocks_store::remove_entry(const std::string& key) {
  fronts_.will_remove(key);
  require_batch(changes_.SingleDelete(key));
}

void rocks_store::put(const std::string& key, const std::string& value) {
  require_batch(changes_.Put(key, value));
}

void rocks_store::insert(const batch::insertion& i) {
  value_.clear();
  append_fields(value_, *i.fields, i.where);
  const rocksdb::Slice parts[] = {value_, {i.body.data(), i.body.size()}};
  key_ = task_key(i.fields->id);
  const rocksdb::Slice key(key_);
  require_batch(changes_.Put(rocksdb::SliceParts(&key, 1), rocksdb::SliceParts(parts, 2)));
  put_entry(index_key(i.fields->tube, i.where, i.fields->id));
  if (!i.fields->key.empty()) {
    put(key_key(i.fields->tube, i.fields->key), number_value(i.fields->id));
  }
}

void rocks_store::change(const batch::update& u) {
  const task& t = *u.fields;
  value_.clear();
  append_fields(value_, t, u.after);
  put(changes_key(t.id), value_);
  if (u.before != u.after || u.tube_before != t.tube) {
    remove_entry(index_key(u.tube_before, u.before, t.id));
    put_entry(index_key(t.tube, u.after, t.id));
  }
  if (u.key_before != t.key || u.tube_before != t.tube) {
    if (!u.key_before.empty()) require_batch(changes_.Delete(key_key(u.tube_before, u.key_before)));
    if (!t.key.empty()) put(key_key(t.tube, t.key), number_value(t.id));
  }
}

void rocks_store::remove(const batch::removal& r) {
  require_batch(changes_.SingleDelete(task_key(r.id)));
  remove_entry(index_key(r.tube, r.where, r.id));
  if (r.changed) require_batch(changes_.Delete(changes_key(r.id)));
  if (!r.key.empty()) require_batch(changes_.Delete(key_key(r.tube, r.key)));
}

/// A batch does not end in zeros, so that one whose end is missing is known in a log that reads
/// as zeros beyond its end. This is in the log alone.
void rocks_store::end_batch(rocksdb::WriteBatch& b) { require_batch(b.PutLogData("end")); }

void rocks_store::require_batch(const rocksdb::Status& s) { require(s, "preparing a write to"); }

void rocks_store::require(const rocksdb::Status& s, const char* doing) {
  if (s.ok()) return;
  failed_ = true;
  fail_with(doing, directory_, s);
}

std::unique_ptr<store> open_rocks_store(const rocks_options& options) {
  return std::make_unique<rocks_store>(options);
}

}  // namespace verge::server
