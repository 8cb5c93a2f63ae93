// SPDX-License-Identifier: Apache-2.0

// A small directory of tasks, in which every byte of every file is changed in turn: the store says
// so, or it did not matter. Never another task, never the end of the process.
// crash/flipped_bit_test does the same at random to the directory of a server. VERGE_CRASH=long
// flips every bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "crash/amount.h"
#include "store/rocks_database.h"
#include "store/rocks_store.h"
#include "store/table_check.h"
#include "store/xxh3.h"
#include "support/last_words.h"

namespace {

using namespace verge::server;
namespace crash = verge::crash;
namespace fs = std::filesystem;
using testing::HasSubstr;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// All tasks with their bodies, as text.
std::vector<std::string> tasks_in(store& s) {
  std::vector<std::string> all;
  for (const tube_record& tube : s.recover().tubes) {
    for (const auto kind : {place_kind::delayed, place_kind::ready, place_kind::buried}) {
      for (const stored_task& t : s.scan(tube.number, beginning_of(kind), 1000)) {
        all.push_back(tube.name + " " + std::to_string(t.fields.id) + " " + t.fields.key + " " +
                      std::to_string(t.fields.due) + " " + s.body_of(t.fields.id));
      }
    }
  }
  return all;
}

class damage : public testing::Test {
 protected:
  enum class outcome : std::uint8_t { said, harmless };

  void SetUp() override {
    std::string name = (fs::exists("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path()) /
                       "verge-damage-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    place_ = name;
    // What one start leaves in a log is in tables after the next. So there are two of them, a log
    // with tasks, and a manifest that tells how that came about.
    for (task_id first : {1, 41, 81}) {
      const auto s = open_rocks_store({.directory = directory()});
      for (task_id id = first; id < first + 20; ++id) put(*s, id);
    }
    {
      rocks_store s({.directory = directory()}, access::read);
      whole_ = tasks_in(s);
    }
    ASSERT_EQ(whole_.size(), 60U);
    ASSERT_TRUE(check_rocks_store(directory()).faults.empty());
    for (const auto& file : fs::directory_iterator(directory())) {
      const std::string file_name = file.path().filename();
      if (!file_name.starts_with("LO")) files_[file_name] = read_file(file.path());  // LOG, LOCK
    }
  }
  void TearDown() override {
    if (!place_.empty()) fs::remove_all(place_);
  }

  std::string directory() const { return place_ / "tasks"; }

  static void put(store& s, task_id id) {
    task t;
    t.id = id;
    t.tube = 1;
    t.due = 1000 + static_cast<wall_time>(id);
    t.ttr = 60;
    if (id % 4 == 0) t.key = "key-" + std::to_string(id);
    // It is stored compressed.
    std::string body = "the body of task " + std::to_string(id);
    for (int i = 0; i < 20; ++i) body += ", and so on";
    batch b;
    b.insertions.push_back({.fields = &t,
                            .where = {.kind = place_kind::delayed, .priority = 0, .at = t.due},
                            .body = body});
    b.tubes.push_back({.number = 1, .name = "orders", .delayed = id % 40 + id / 40 * 20});
    b.id_ceiling = 1000;
    s.write(b);
  }

  std::vector<std::string> names_of(std::string_view kind) const {
    std::vector<std::string> names;
    for (const auto& [name, bytes] : files_) {
      if (name.find(kind) != std::string::npos && !bytes.empty()) names.push_back(name);
    }
    return names;
  }

  /// Changes bits of a byte, looks, and changes them back.
  outcome look_with(const std::string& name, std::size_t at, unsigned bits) {
    std::string& bytes = files_.at(name);
    const char was = bytes[at];
    bytes[at] = static_cast<char>(static_cast<unsigned char>(was) ^ bits);
    std::ofstream(directory() + "/" + name, std::ios::binary) << bytes;
    doing_.set("with " + std::to_string(bits) + " flipped in byte " + std::to_string(at) + " of " +
               std::to_string(bytes.size()) + " of " + name);
    const outcome found = look();
    bytes[at] = was;
    std::ofstream(directory() + "/" + name, std::ios::binary) << bytes;
    return found;
  }

  outcome look() {
    try {
      rocks_store s({.directory = directory()}, access::read);
      const std::vector<std::string> found = tasks_in(s);
      if (found == whole_) return outcome::harmless;
    } catch (const store_error& e) {
      EXPECT_TRUE(std::string_view(e.what()).find("failed: ") != std::string_view::npos ||
                  std::string_view(e.what()).find("verge check") != std::string_view::npos)
          << doing_.text() << e.what();
      said_ = e.what();
      return outcome::said;
    }
    try {
      EXPECT_FALSE(check_rocks_store(directory()).faults.empty())
          << doing_.text() << "other tasks, silently";
    } catch (const store_error& e) {
      said_ = e.what();
    }
    return outcome::said;
  }

  /// Every `step`th byte, in one of the lower bits and in `more`. How many were noticed.
  std::size_t flip_each(const std::string& name, unsigned more, std::size_t step = 1) {
    std::size_t noticed = 0;
    for (std::size_t at = 0; at < files_.at(name).size(); at += step) {
      const auto one = static_cast<unsigned>(at / step % 7);
      for (unsigned bit = 0; bit < 8; ++bit) {
        const unsigned bits = 1U << bit;
        if (!crash::is_long() && bit != one && bits != more) continue;
        if (look_with(name, at, bits) == outcome::said) ++noticed;
      }
    }
    return noticed;
  }

  test::last_words doing_;
  fs::path place_;
  std::map<std::string, std::string> files_;
  std::vector<std::string> whole_;
  std::string said_;
};

TEST_F(damage, is_noticed_in_every_bit_of_the_footer_of_a_table) {
  const auto tables = names_of(".sst");
  ASSERT_FALSE(tables.empty());
  const std::size_t size = files_.at(tables[0]).size();
  for (std::size_t at = size - table_footer_size; at < size; ++at) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      EXPECT_EQ(look_with(tables[0], at, 1U << bit), outcome::said) << doing_.text();
    }
  }
  // Which says that blocks have no checksums.
  EXPECT_EQ(look_with(tables[0], size - table_footer_size, 4), outcome::said);
  EXPECT_THAT(said_, HasSubstr(tables[0] + " is damaged: its footer"));
  EXPECT_THAT(said_, HasSubstr("restore a backup"));
}

TEST_F(damage, is_noticed_in_every_byte_of_a_table) {
  const std::string table = names_of(".sst").at(0);
  // The highest bits have meanings of their own in many places.
  EXPECT_EQ(flip_each(table, 128), files_.at(table).size() * crash::amount(2U, 8U));
}

TEST_F(damage, is_noticed_in_other_files_or_is_harmless) {
  for (const auto& [name, bytes] : files_) {
    if (name.ends_with(".sst") || bytes.empty()) continue;
    const bool is_read =
        name.starts_with("MANIFEST") || name == "CURRENT" || name.ends_with(".log");
    const std::size_t noticed = flip_each(name, 0, is_read && bytes.size() < 2000 ? 1 : 16);
    EXPECT_EQ(noticed != 0, is_read) << name;
  }
}

TEST_F(damage, is_noticed_where_a_table_is_shorter) {
  const std::string table = names_of(".sst").at(0);
  const std::string bytes = files_.at(table);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{40}, table_footer_size, bytes.size() - 1}) {
    doing_.set(table + " cut to " + std::to_string(size));
    std::ofstream(directory() + "/" + table, std::ios::binary) << bytes.substr(0, size);
    EXPECT_EQ(look(), outcome::said) << doing_.text();
  }
}

// RocksDB's own function has said these.
TEST(xxh3, is_what_rocksdb_computes) {
  std::string bytes;
  for (int i = 0; i < 2000; ++i) bytes.push_back(static_cast<char>(i * 7));
  const std::map<std::size_t, std::uint64_t> known{
      {4, 0xd3d60c1519014e89U},    {8, 0xb88dee77f6bf6980U},    {9, 0x3688dcad730d826U},
      {16, 0x9da23836adf2be1eU},   {17, 0xf34c3c9cf5a112d1U},   {64, 0x6efb76ff16f37561U},
      {128, 0x65f3c2c00fa93185U},  {129, 0x28065c6ec25f5b25U},  {200, 0x7c64f3b17285e96aU},
      {240, 0x4917a75c0ef8eed7U},  {241, 0x541b19226f0052e8U},  {1024, 0xdc5acf0b043c445bU},
      {1025, 0xe1d9cd946277ae26U}, {2000, 0xe4a112bbea5308a7U},
  };
  for (const auto& [size, value] : known) {
    EXPECT_EQ(xxh3(std::string_view(bytes).substr(0, size)), value) << size;
  }
}

}  // namespace
