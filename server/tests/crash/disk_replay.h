// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "disk_log.h"
#include "ledger.h"

/// A recording of what a server did to its disk, and the directories that a loss of power would
/// have left of it.
namespace verge::crash {

class recording {
 public:
  struct entry {
    disk_record head;
    std::string_view payload;
  };

  /// Reads a log. A record that was cut off by kill -9 is left out.
  explicit recording(const std::string& log);
  recording(const recording&) = delete;
  recording& operator=(const recording&) = delete;

  const std::vector<entry>& entries() const noexcept { return entries_; }
  /// Notes in the steps of a ledger when their answers left the server. `lives`: where the records
  /// of each start of the server begin.
  void resolve(ledger& book, const std::vector<position>& lives) const;

  /// Cuts a record off that kill -9 has left unfinished, so that the next server can go on with the
  /// log. Returns the number of records.
  static position mend(const std::string& log);

 private:
  std::string bytes_;
  std::vector<entry> entries_;
};

/// The counter beside a log: how many records there are while the server runs.
class log_counter {
 public:
  explicit log_counter(const std::string& log);
  log_counter(const log_counter&) = delete;
  log_counter& operator=(const log_counter&) = delete;
  ~log_counter();
  position now() const noexcept { return at_->load(); }
  void set(position n) noexcept { at_->store(n); }

 private:
  std::atomic<position>* at_;
};

/// The disk during a recording. It goes forward; at any place it can be asked for a directory.
///
/// A file's contents are what was synced, and a list of writes since. A directory is a list of
/// names, and of changes since it was synced. After a loss of power each write may have happened or
/// not, or in part, sector by sector, in any order. Of the changes of a directory the last ones may
/// be missing, but no earlier one without the later ones: the journals of ext4, XFS and btrfs keep
/// that order, and RocksDB relies on it when it is opened, as it names a new manifest in CURRENT
/// before it syncs the directory. Nothing else is taken from what file systems do beyond POSIX:
/// that a file is synced says nothing about its name.
class disk {
 public:
  disk(const recording& of, std::string root);

  /// Goes on until so many records have happened.
  void advance(position to);
  /// Makes the files as they may be after a loss of power now, below `target`. What `random` says
  /// decides what is lost.
  void lose_power(const std::string& target, std::mt19937_64& random) const;

 private:
  struct change {
    bool truncates{false};
    std::uint64_t offset{0};
    std::string_view bytes;
  };
  struct file {
    std::string synced;
    std::vector<change> since;
    bool is_directory{false};
  };
  using file_ref = std::shared_ptr<file>;
  struct name_change {
    std::string name;
    file_ref to;               ///< nothing: the name is removed
    std::string also_removes;  ///< rename: at the same time
  };
  struct directory {
    std::map<std::string, file_ref> synced;
    std::vector<name_change> since;
  };
  struct sync {
    file_ref of;
    std::string directory;  ///< or this
    std::size_t changes{0};
  };

  void take(const recording::entry& e);
  void open(const recording::entry& e);
  void begin_sync(const recording::entry& e);
  void end_sync(const recording::entry& e);
  void move(const recording::entry& e, bool removes);
  std::map<std::string, file_ref>& names_now(const std::string& folder) { return now_[folder]; }

  const recording& recording_;
  std::string root_;
  position at_{0};
  std::map<std::string, directory> directories_;                // as the disk has them
  std::map<std::string, std::map<std::string, file_ref>> now_;  // as the programs see them
  std::map<int, file_ref> open_;
  std::map<int, std::string> open_directories_;
  std::map<std::pair<std::uint64_t, int>, sync> syncs_;
};

}  // namespace verge::crash
