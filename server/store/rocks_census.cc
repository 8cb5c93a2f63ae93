// SPDX-License-Identifier: Apache-2.0

#include "rocks_census.h"

#include <utility>

#include "records.h"
#include "store.h"

namespace verge::server {

namespace {

class rocks_census final : public census {
 public:
  rocks_census(rocksdb::DB& db, std::vector<tube_number> tubes, const census_range& r)
      : census(r), db_(db), tubes_(std::move(tubes)), snapshot_(db.GetSnapshot()) {}
  rocks_census(const rocks_census&) = delete;
  rocks_census& operator=(const rocks_census&) = delete;
  ~rocks_census() override { db_.ReleaseSnapshot(snapshot_); }

 private:
  std::optional<std::vector<std::uint64_t>> count() override {
    std::vector<std::uint64_t> counts(range().steps);
    rocksdb::ReadOptions read;
    read.snapshot = snapshot_;
    read.fill_cache = false;
    const std::unique_ptr<rocksdb::Iterator> i(db_.NewIterator(read));
    for (const tube_number tube : tubes_) {
      const auto at = [](wall_time t) { return place{place_kind::delayed, 0, t}; };
      const std::string end = records::index_key(tube, at(range().end()), 0);
      std::size_t seen = 0;
      for (i->Seek(records::index_key(tube, at(range().first), 0));
           i->Valid() && i->key().compare(end) < 0; i->Next()) {
        tube_number of = 0;
        place p;
        task_id id = 0;
        if (!records::parse_index_key({i->key().data(), i->key().size()}, of, p, id)) {
          return std::nullopt;
        }
        const auto step = static_cast<std::size_t>((p.at - range().first) / range().step);
        if (step < counts.size()) ++counts[step];
        if (++seen % 1024 == 0 && is_over()) return std::nullopt;
      }
      if (is_over() || !i->status().ok()) return std::nullopt;
    }
    return counts;
  }

  rocksdb::DB& db_;
  const std::vector<tube_number> tubes_;
  const rocksdb::Snapshot* const snapshot_;
};

}  // namespace

std::shared_ptr<census> take_rocks_census(rocksdb::DB& db, std::vector<tube_number> tubes,
                                          const census_range& range) {
  return std::make_shared<rocks_census>(db, std::move(tubes), range);
}

}  // namespace verge::server
