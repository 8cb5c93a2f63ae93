// SPDX-License-Identifier: Apache-2.0

#include "low_water.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "records.h"
#include "rocks_database.h"

namespace verge::server {

namespace {

using namespace records;

constexpr std::size_t prefix_size = 5;
std::string prefix_of(std::uint64_t index) {
  std::string prefix;
  for (int shift = 32; shift >= 0; shift -= 8) {
    prefix.push_back(static_cast<char>((index >> shift) & 0xff));
  }
  return prefix;
}

}  // namespace

std::uint64_t low_water_marks::index_of(std::string_view index_key) noexcept {
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < prefix_size; ++i) {
    n = (n << 8) | static_cast<unsigned char>(index_key[i]);
  }
  return n;
}

void low_water_marks::load(rocksdb::DB& db, const rocksdb::ReadOptions& how) {
  const std::unique_ptr<rocksdb::Iterator> i(db.NewIterator(how));
  const std::string all = low_water_key({});
  for (i->Seek(all); i->Valid() && i->key().starts_with(all); i->Next()) {
    const std::string_view prefix = bytes_of(i->key()).substr(all.size());
    if (prefix.size() != prefix_size) continue;
    marks_[index_of(prefix)] = {.key = std::string(bytes_of(i->value())),
                                .removals = 0,
                                .is_stored = true,
                                .changed = false};
  }
}

void low_water_marks::change(std::uint64_t index, mark& m) {
  if (!std::exchange(m.changed, true)) changed_.push_back(index);
}

void low_water_marks::will_put(std::string_view index_key) {
  if (marks_.empty()) return;
  const std::uint64_t index = index_of(index_key);
  const auto found = marks_.find(index);
  if (found == marks_.end() || found->second.key <= index_key) return;
  found->second.key = index_key;
  change(index, found->second);
}

void low_water_marks::will_remove(std::string_view index_key) {
  const std::uint64_t index = index_of(index_key);
  if (++marks_[index].removals == removals_between) to_rise_.push_back(index);
}

void low_water_marks::will_remove_tube(tube_number tube) {
  for (const place_kind kind : {place_kind::delayed, place_kind::ready, place_kind::buried}) {
    const std::uint64_t index = index_of(index_prefix(tube, kind));
    const auto found = marks_.find(index);
    if (found == marks_.end()) continue;
    if (found->second.is_stored) removed_.push_back(index);
    marks_.erase(found);
  }
}

void low_water_marks::add_to(rocksdb::WriteBatch& b) {
  for (const std::uint64_t index : std::exchange(removed_, {})) {
    b.Delete(low_water_key(prefix_of(index))).PermitUncheckedError();
  }
  for (const std::uint64_t index : std::exchange(changed_, {})) {
    const auto found = marks_.find(index);
    if (found == marks_.end()) continue;
    found->second.changed = false;
    found->second.is_stored = true;
    b.Put(low_water_key(prefix_of(index)), found->second.key).PermitUncheckedError();
  }
}

void low_water_marks::rise(rocksdb::DB& db, const rocksdb::ReadOptions& how) {
  for (const std::uint64_t index : std::exchange(to_rise_, {})) {
    const auto found = marks_.find(index);
    if (found == marks_.end()) continue;
    mark& m = found->second;
    m.removals = 0;
    const std::string prefix = prefix_of(index);
    const std::string end = end_of_index(prefix);
    const rocksdb::Slice bound(end);
    rocksdb::ReadOptions within = how;
    within.iterate_upper_bound = &bound;
    const std::unique_ptr<rocksdb::Iterator> i(db.NewIterator(within));
    i->Seek(std::max(prefix, m.key));
    if (!i->status().ok()) continue;  // the next read returns the error
    std::string first = i->Valid() ? std::string(bytes_of(i->key())) : end;
    if (first == m.key) continue;
    m.key = std::move(first);
    change(index, m);
  }
}

std::string low_water_marks::from(std::string index_key) const {
  const auto found = marks_.find(index_of(index_key));
  if (found != marks_.end() && index_key < found->second.key) return found->second.key;
  return index_key;
}

}  // namespace verge::server
