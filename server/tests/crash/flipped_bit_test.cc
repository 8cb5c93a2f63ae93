// SPDX-License-Identifier: Apache-2.0

// One flipped bit anywhere in a directory of tasks: it is noticed and said, or it did not matter.
// Never a wrong body, never a task that is silently missing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>

#include "amount.h"
#include "crowd.h"
#include "process.h"
#include "support/last_words.h"

namespace verge::crash {
namespace {

namespace fs = std::filesystem;
using testing::IsEmpty;

/// The contents of a directory, by file; without what nothing depends on.
using contents = std::map<std::string, std::string>;

contents read_files(const std::string& directory) {
  contents all;
  for (const auto& file : fs::directory_iterator(directory)) {
    const std::string name = file.path().filename();
    if (name.starts_with("LOG") || name == "LOCK") continue;
    std::string& bytes = all[name];
    bytes.resize(file.file_size());
    std::ifstream(file.path(), std::ios::binary)
        .read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  return all;
}

void write_files(const contents& all, const std::string& directory) {
  fs::remove_all(directory);
  fs::create_directory(directory);
  for (const auto& [name, bytes] : all)
    std::ofstream(directory + "/" + name, std::ios::binary) << bytes;
}

/// Behind the last byte that is not zero.
std::size_t end_of(const std::string& bytes) { return bytes.find_last_not_of('\0') + 1; }

/// Their names have as many digits each.
contents::iterator last_log_of(contents& files) {
  auto found = files.end();
  for (auto f = files.begin(); f != files.end(); ++f) {
    if (f->first.ends_with(".log")) found = f;
  }
  return found;
}

/// A directory with files of all kinds, left by kill -9, and the ledger of what is in it.
class flipped_bit : public testing::Test {
 protected:
  void SetUp() override {
    const std::string data = place_ / "data";
    // When the server is killed it may just have begun a log: then it has another life.
    for (int life = 0; life < 2 || end_of(last_log_of(files_)->second) < 8192; ++life) {
      if (life != 0) clients_.adopt(read_copy_of(data, place_ / "copy"));
      server_process server(data, {"--memtable", "262144"});
      ASSERT_TRUE(server.serves());
      clients_.start(server.port(), 400);
      clients_.join();
      server.kill();
      ASSERT_THAT(clients_.problems(), IsEmpty());
      files_ = read_files(data);
    }
  }

  /// What is wrong with the directory and was not said; empty if all is well or was said.
  std::vector<std::string> silent_faults(const contents& files, bool* said) {
    const std::string directory = place_ / "flipped";
    write_files(files, directory);
    *said = true;
    try {
      const snapshot found = read_directory(directory);
      if (!found.faults.empty()) return {};
      *said = false;
      return compare(clients_.ledgers(), found, never);
    } catch (const server::store_error& e) {
      const std::string text = e.what();
      if (text.find("failed: ") != std::string::npos ||
          text.find("verge check") != std::string::npos) {
        return {};
      }
      return {"what it says is not clear: " + text};
    }
  }

  scratch place_;
  crowd clients_{3, seed_of(1)};
  contents files_;
};

TEST_F(flipped_bit, is_noticed_or_does_not_matter) {
  server::test::last_words flip;
  std::mt19937_64 random(seed_of(1));
  std::map<std::string, std::vector<std::string>> kinds;
  for (const auto& [name, bytes] : files_) {
    if (bytes.empty()) continue;
    const std::string kind = name.starts_with("MANIFEST") ? "MANIFEST"
                             : name.ends_with(".sst")     ? "sst"
                             : name.ends_with(".log")     ? "log"
                             : name == "CURRENT"          ? "CURRENT"
                                                          : "";
    if (!kind.empty()) kinds[kind].push_back(name);
  }
  ASSERT_EQ(kinds.size(), 4U) << "the directory has not files of all kinds";
  for (const auto& [kind, names] : kinds) {
    int noticed = 0;
    const int times = kind == "CURRENT" ? 16 * 8 : amount(50, 1500);
    for (int i = 0; i < (is_long() || kind != "CURRENT" ? times : 12); ++i) {
      contents flipped = files_;
      const std::string& name = names[random() % names.size()];
      std::string& bytes = flipped[name];
      // Half of them near the end, where a log is allowed to be torn; some in the zeros behind it.
      const std::size_t end = i % 8 == 6 ? bytes.size() : end_of(bytes);
      const std::size_t span =
          i % 2 == 0 ? end : std::min<std::size_t>(end, kind == "log" ? 4096 : 400);
      const std::size_t at = end - 1 - random() % span;
      const int bit = static_cast<int>(random() % 8);
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
      bool said = false;
      flip.set("bit " + std::to_string(bit) + " of byte " + std::to_string(at) + " of " +
               std::to_string(bytes.size()) + " of " + name);
      EXPECT_THAT(silent_faults(flipped, &said), IsEmpty()) << flip.text();
      noticed += said ? 1 : 0;
    }
    EXPECT_GT(noticed, 0) << "no flipped bit was noticed in " << kind;
  }
}

TEST_F(flipped_bit, in_the_middle_of_the_log_is_told_by_serve_and_by_check) {
  const auto log = std::max_element(files_.begin(), files_.end(), [](const auto& a, const auto& b) {
    const auto size = [](const auto& f) { return f.first.ends_with(".log") ? f.second.size() : 0; };
    return size(a) < size(b);
  });
  std::string& bytes = log->second;
  ASSERT_GT(end_of(bytes), 2000U);
  bytes[end_of(bytes) / 2] = static_cast<char>(bytes[end_of(bytes) / 2] ^ 4);
  const std::string directory = place_ / "flipped";
  write_files(files_, directory);
  const ended check = run({tool(), "check", directory});
  EXPECT_EQ(check.status, 74);
  EXPECT_THAT(check.error, testing::HasSubstr("restore a backup"));
  server_process server(directory);
  EXPECT_FALSE(server.serves());
  const ended end = server.wait();
  EXPECT_EQ(end.status, 74);
  EXPECT_THAT(end.error, testing::HasSubstr("restore a backup"));
  EXPECT_EQ(std::count(end.error.begin(), end.error.end(), '\n'), 1) << end.error;
}

// The last bytes of a log never reached the disk: a batch that no client was told of. It opens, and
// all batches before are there.
TEST_F(flipped_bit, is_not_what_a_torn_tail_is) {
  std::mt19937_64 random(seed_of(2));
  const auto log = last_log_of(files_);
  const std::size_t size = log->second.size();
  const std::string whole = log->second.substr(0, end_of(log->second));
  ASSERT_GT(size, whole.size()) << "there are no zeros behind the log of a server that was killed";
  std::size_t tasks_before = 0;
  std::vector<std::size_t> ends{whole.size()};
  for (int i = 0; i < amount(30, 300); ++i) ends.push_back(random() % whole.size());
  std::sort(ends.begin(), ends.end());
  for (const std::size_t end : ends) {
    // The file ends there, or reads as zeros from the sector on that it is in.
    const bool zeros = end != whole.size() && random() % 2 == 0;
    log->second = whole.substr(0, zeros ? end / 512 * 512 : end);
    if (zeros) log->second.resize(size);
    const std::string directory = place_ / "torn";
    write_files(files_, directory);
    snapshot found;
    ASSERT_NO_THROW(found = read_directory(directory))
        << "cut to " << end << " of " << whole.size();
    EXPECT_THAT(found.faults, IsEmpty());
    if (end != whole.size()) continue;
    tasks_before = found.tasks.size();
    EXPECT_THAT(compare(clients_.ledgers(), found, never), IsEmpty());
  }
  EXPECT_GT(tasks_before, 0U);
}

// All of a log is on disk when the next one is begun: what is missing there was acknowledged.
TEST_F(flipped_bit, is_not_needed_an_older_log_without_its_end_is_refused_too) {
  const auto log = last_log_of(files_);
  const std::string whole = log->second;
  files_["999999.log"] = "";
  const std::string directory = place_ / "two";
  for (const bool cut : {false, true}) {
    if (cut) log->second = whole.substr(0, end_of(whole) - 20);
    write_files(files_, directory);
    const auto read = [&] { static_cast<void>(read_directory(directory)); };
    if (cut) {
      EXPECT_THROW(read(), server::store_error);
    } else {
      EXPECT_NO_THROW(read());
    }
  }
}

TEST_F(flipped_bit, is_not_needed_a_directory_without_current_is_refused_too) {
  files_.erase("CURRENT");
  const std::string directory = place_ / "headless";
  write_files(files_, directory);
  server_process server(directory);
  EXPECT_FALSE(server.serves());
  const ended end = server.wait();
  EXPECT_EQ(end.status, 74);
  EXPECT_THAT(end.error, testing::HasSubstr("CURRENT is missing"));
  EXPECT_EQ(read_files(directory).size(), files_.size()) << "it has removed files";
}

}  // namespace
}  // namespace verge::crash
