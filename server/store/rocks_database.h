// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>
#include <rocksdb/statistics.h>
#include <rocksdb/write_batch.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "low_water.h"
#include "rocks_store.h"

/// The store on RocksDB, with its inside: for the store itself and for what checks it. Others
/// include rocks_store.h.
namespace verge::server {

/// Read: the directory is not changed, whatever state it is in.
enum class access : std::uint8_t { read, write };

class rocks_store final : public store {
 public:
  explicit rocks_store(const rocks_options& o, access how = access::write);
  rocks_store(const rocks_store&) = delete;
  rocks_store& operator=(const rocks_store&) = delete;
  ~rocks_store() override;

  recovered recover() override;
  void write(const batch& b) override;
  std::optional<stored_task> find(task_id id) override;
  std::string body_of(task_id id) override;
  std::optional<task_id> find_key(tube_number tube, std::string_view key) override;
  std::vector<stored_task> scan(tube_number tube, const position& first,
                                std::size_t limit) override;
  std::shared_ptr<census> take_census(std::vector<tube_number> tubes,
                                      const census_range& range) override;
  store_figures figures() override;
  void backup(const std::string& directory) override;

  rocksdb::DB& db() noexcept { return *db_; }

 private:
  rocksdb::Options options_for(const rocks_options& o);
  void open_to_write(const rocks_options& o);
  void open_to_read(const rocks_options& o);
  void check_format(access how);
  void write_format();
  std::uint64_t mark(std::string_view name, std::uint64_t otherwise);
  void put(const std::string& key, const std::string& value);
  void insert(const batch::insertion& i);
  void change(const batch::update& u);
  void remove(const batch::removal& r);
  void put_entry(const std::string& key);
  void remove_entry(const std::string& key);
  void end_batch(rocksdb::WriteBatch& b);
  void require_batch(const rocksdb::Status& s);
  void require(const rocksdb::Status& s, const char* doing);

  std::string directory_;
  std::shared_ptr<std::atomic<std::uint64_t>> zeros_written_{
      std::make_shared<std::atomic<std::uint64_t>>(0)};
  std::shared_ptr<void> lock_;         // while the directory is read
  std::unique_ptr<rocksdb::Env> env_;  // outlasts the database
  std::unique_ptr<rocksdb::DB> db_;
  std::shared_ptr<rocksdb::Statistics> statistics_;
  rocksdb::ReadOptions read_;
  rocksdb::WriteOptions write_;
  rocksdb::WriteBatch changes_;
  low_water_marks fronts_;
  std::string key_;
  std::string value_;
  bool failed_{false};
};

/// What is wrong with a status of RocksDB, and what to do.
[[noreturn]] void fail_with(const std::string& doing, const std::string& directory,
                            const rocksdb::Status& s);

inline std::string_view bytes_of(const rocksdb::Slice& s) { return {s.data(), s.size()}; }

}  // namespace verge::server
