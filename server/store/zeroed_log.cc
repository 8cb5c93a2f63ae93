// SPDX-License-Identifier: Apache-2.0

#include "zeroed_log.h"

#include <fcntl.h>
#include <rocksdb/file_system.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "table_check.h"

namespace verge::server {

namespace {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

/// Written ahead at a time: a thousand small batches, or a few large ones.
constexpr std::uint64_t step = 256U << 10;

using counter = std::shared_ptr<std::atomic<std::uint64_t>>;

class zeroed_log final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  /// `number`: the same file, opened once more.
  zeroed_log(std::unique_ptr<rocksdb::FSWritableFile> file, int number, counter zeros)
      : FSWritableFileOwnerWrapper(std::move(file)), number_(number), zeros_(std::move(zeros)) {}
  zeroed_log(const zeroed_log&) = delete;
  zeroed_log& operator=(const zeroed_log&) = delete;
  ~zeroed_log() override {
    if (number_ >= 0) ::close(number_);
  }

  IOStatus Append(const Slice& data, const IOOptions& o, IODebugContext* c) override {
    zero_ahead(data.size());
    return note(FSWritableFileOwnerWrapper::Append(data, o, c), data.size());
  }
  IOStatus Append(const Slice& data, const IOOptions& o, const rocksdb::DataVerificationInfo& info,
                  IODebugContext* c) override {
    zero_ahead(data.size());
    return note(FSWritableFileOwnerWrapper::Append(data, o, info, c), data.size());
  }
  IOStatus Close(const IOOptions& o, IODebugContext* c) override {
    IOStatus closed = FSWritableFileOwnerWrapper::Close(o, c);
    if (number_ < 0) return closed;
    // If it stays longer than it is, that is mended when it is opened.
    if (zeroed_ > length_) {
      static_cast<void>(!::ftruncate(number_, static_cast<off_t>(length_)));
    }
    ::close(std::exchange(number_, -1));
    return closed;
  }

 private:
  IOStatus note(IOStatus appended, std::size_t size) {
    length_ += size;
    return appended;
  }

  void zero_ahead(std::size_t size) noexcept {
    static constexpr std::array<char, 64U << 10> zeros{};
    while (number_ >= 0 && length_ + size > zeroed_) {
      // What is appended right now need not be zeros first.
      const std::uint64_t from = std::max(zeroed_, length_ + size);
      const std::uint64_t to = (from / step + 1) * step;
      for (std::uint64_t at = from; at < to;) {
        const ssize_t n = ::pwrite(number_, zeros.data(), std::min(zeros.size(), to - at),
                                   static_cast<off_t>(at));
        if (n <= 0) {
          ::close(std::exchange(number_, -1));
          return;
        }
        at += static_cast<std::uint64_t>(n);
        zeros_->fetch_add(static_cast<std::uint64_t>(n), std::memory_order_relaxed);
      }
      zeroed_ = to;
    }
  }

  int number_;
  std::uint64_t length_{0};
  std::uint64_t zeroed_{0};
  counter zeros_;
};

class zeroing_file_system final : public rocksdb::FileSystemWrapper {
 public:
  explicit zeroing_file_system(counter zeros)
      : FileSystemWrapper(file_system_with_checked_tables()), zeros_(std::move(zeros)) {}

  const char* Name() const override { return "verge: zeroed logs"; }

  IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& o,
                           std::unique_ptr<rocksdb::FSWritableFile>* made,
                           IODebugContext* c) override {
    IOStatus s = FileSystemWrapper::NewWritableFile(path, o, made, c);
    if (!s.ok() || !std::string_view(path).ends_with(".log")) return s;
    const int number = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (number >= 0) *made = std::make_unique<zeroed_log>(std::move(*made), number, zeros_);
    return s;
  }

 private:
  counter zeros_;
};

}  // namespace

std::unique_ptr<rocksdb::Env> make_env_with_zeroed_logs(counter zeros_written) {
  return rocksdb::NewCompositeEnv(std::make_shared<zeroing_file_system>(std::move(zeros_written)));
}

}  // namespace verge::server
