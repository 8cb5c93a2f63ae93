// SPDX-License-Identifier: Apache-2.0

#include "log_env.h"

#include <fcntl.h>
#include <rocksdb/file_system.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "table_check.h"

namespace verge::server {

namespace {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

class syncing_file_system final : public rocksdb::FileSystemWrapper {
 public:
  syncing_file_system() : FileSystemWrapper(file_system_with_checked_tables()) {}

  const char* Name() const override { return "verge: synced old logs"; }

  /// One thread writes, and begins logs.
  IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& o,
                           std::unique_ptr<rocksdb::FSWritableFile>* made,
                           IODebugContext* c) override {
    const bool is_log = std::string_view(path).ends_with(".log");
    if (is_log && !last_log_.empty()) {
      if (IOStatus s = sync(last_log_); !s.ok()) return s;
    }
    IOStatus s = FileSystemWrapper::NewWritableFile(path, o, made, c);
    if (is_log && s.ok()) last_log_ = path;
    return s;
  }

 private:
  /// A log that is not there any more need not be synced: its tasks are in other files.
  static IOStatus sync(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return IOStatus::OK();
    const bool done = fd >= 0 && ::fdatasync(fd) == 0;
    const int error = errno;
    if (fd >= 0) ::close(fd);
    if (done) return IOStatus::OK();
    return IOStatus::IOError("syncing " + path, std::generic_category().message(error));
  }

  std::string last_log_;
};

/// A file that ends earlier than it does.
class cut_file final : public rocksdb::FSSequentialFileOwnerWrapper {
 public:
  cut_file(std::unique_ptr<rocksdb::FSSequentialFile> file, std::uint64_t size)
      : FSSequentialFileOwnerWrapper(std::move(file)), left_(size) {}

  IOStatus Read(std::size_t n, const IOOptions& o, rocksdb::Slice* result, char* scratch,
                IODebugContext* c) override {
    const auto asked = static_cast<std::size_t>(std::min<std::uint64_t>(n, left_));
    if (asked == 0) {
      *result = rocksdb::Slice();
      return IOStatus::OK();
    }
    IOStatus s = FSSequentialFileOwnerWrapper::Read(asked, o, result, scratch, c);
    left_ -= std::min<std::uint64_t>(left_, result->size());
    return s;
  }
  IOStatus Skip(std::uint64_t n) override {
    const std::uint64_t some = std::min(n, left_);
    left_ -= some;
    return FSSequentialFileOwnerWrapper::Skip(some);
  }

 private:
  std::uint64_t left_;
};

class cutting_file_system final : public rocksdb::FileSystemWrapper {
 public:
  explicit cutting_file_system(const std::vector<log_cut>& cuts)
      : FileSystemWrapper(file_system_with_checked_tables()) {
    for (const log_cut& c : cuts) sizes_[name_of(c.path)] = c.size;
  }

  const char* Name() const override { return "verge: cut logs"; }

  IOStatus NewSequentialFile(const std::string& path, const rocksdb::FileOptions& o,
                             std::unique_ptr<rocksdb::FSSequentialFile>* made,
                             IODebugContext* c) override {
    IOStatus s = FileSystemWrapper::NewSequentialFile(path, o, made, c);
    const auto found = sizes_.find(name_of(path));
    if (s.ok() && found != sizes_.end()) {
      *made = std::make_unique<cut_file>(std::move(*made), found->second);
    }
    return s;
  }
  IOStatus GetFileSize(const std::string& path, const IOOptions& o, std::uint64_t* size,
                       IODebugContext* c) override {
    const auto found = sizes_.find(name_of(path));
    if (found == sizes_.end()) return FileSystemWrapper::GetFileSize(path, o, size, c);
    *size = found->second;
    return IOStatus::OK();
  }

 private:
  /// Logs are in one directory, which may be written in several ways.
  static std::string name_of(const std::string& path) {
    return std::filesystem::path(path).filename().string();
  }

  std::map<std::string, std::uint64_t> sizes_;
};

}  // namespace

std::unique_ptr<rocksdb::Env> make_env_that_syncs_old_logs() {
  return rocksdb::NewCompositeEnv(std::make_shared<syncing_file_system>());
}

std::unique_ptr<rocksdb::Env> make_env_with_cut_logs(const std::vector<log_cut>& cuts) {
  return rocksdb::NewCompositeEnv(std::make_shared<cutting_file_system>(cuts));
}

}  // namespace verge::server
