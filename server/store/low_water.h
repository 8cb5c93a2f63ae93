// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "store.h"

/// Where each index of a tube begins: a key that none of its entries is before.
///
/// Entries leave an index at its front, mostly, and RocksDB keeps a tombstone for each until files
/// are merged. To look for the first entry from the beginning of the index on is to walk over all
/// of them: with a few hundred thousand that takes as long as a thousand look-ups. While a server
/// runs it knows where it has been; after a restart it begins here.
///
/// A mark rises after every few thousand removals, to the first entry that there is then, and is
/// written with the next batch. An entry that is put before it lowers it, in the same batch. So on
/// disk a mark is always right, and is behind by no more than those removals. It does not help
/// where the first entry stays, and those behind it are removed.
namespace verge::server {

class low_water_marks {
 public:
  /// Removals after which an index is looked at again.
  static constexpr std::uint64_t removals_between = 4096;

  /// Reads what is stored.
  void load(rocksdb::DB& db, const rocksdb::ReadOptions& how);

  /// The next batch puts this key into an index, or removes it.
  void will_put(std::string_view index_key);
  void will_remove(std::string_view index_key);
  void will_remove_tube(tube_number tube);
  /// Adds to the batch what is to be stored with it.
  void add_to(rocksdb::WriteBatch& b);
  /// The batch was written. Marks rise, and are stored with the next one.
  void rise(rocksdb::DB& db, const rocksdb::ReadOptions& how);

  /// Where to look for the first entry that is not before this key.
  std::string from(std::string index_key) const;

 private:
  struct mark {
    std::string key;  ///< empty: the beginning
    std::uint64_t removals{0};
    bool is_stored{false};  ///< there is a record of it, which may have another key
    bool changed{false};
  };
  /// All entries of an index begin with the same five bytes.
  static std::uint64_t index_of(std::string_view index_key) noexcept;
  void change(std::uint64_t index, mark& m);

  std::unordered_map<std::uint64_t, mark> marks_;
  std::vector<std::uint64_t> changed_;
  std::vector<std::uint64_t> to_rise_;
  std::vector<std::uint64_t> removed_;
};

}  // namespace verge::server
