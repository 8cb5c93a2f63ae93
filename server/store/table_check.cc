// SPDX-License-Identifier: Apache-2.0

#include "table_check.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "xxh3.h"

namespace verge::server {

namespace {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

// The format of RocksDB's block based tables. The footer: a byte that says which checksum; where
// the metaindex and the index are; zeros; the version of the format; a magic number. Behind each
// block are a byte that says how it is compressed, and the checksum of both. The metaindex names
// other blocks, the properties among them.
constexpr char xxh3_checksum = 4;
constexpr std::uint32_t version = 5;
constexpr std::uint64_t magic = 0x88e241b785f4cff7U;
constexpr std::size_t handles_size = 40;
constexpr std::size_t trailer_size = 5;

template <class T>
T number(std::string_view bytes) {
  T n = 0;
  std::memcpy(&n, bytes.data(), sizeof n);
  return n;
}

/// In the shortest form: nothing else is written.
std::optional<std::uint64_t> take_varint(std::string_view& in) {
  std::uint64_t n = 0;
  for (unsigned shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto b = static_cast<unsigned char>(in.front());
    in.remove_prefix(1);
    n |= std::uint64_t{b & 0x7fU} << shift;
    if (b == 0 && shift != 0) return std::nullopt;
    if (b < 0x80) return n;
  }
  return std::nullopt;
}

/// Where a block is, without what is behind it.
struct handle {
  std::uint64_t at{0};
  std::uint64_t size{0};
};

std::optional<handle> take_handle(std::string_view& in) {
  const auto at = take_varint(in);
  const auto size = at ? take_varint(in) : std::nullopt;
  if (!size) return std::nullopt;
  return handle{.at = *at, .size = *size};
}

/// As RocksDB has it: the last byte is mixed in on its own.
std::uint32_t checksum_of(std::string_view block_and_kind) {
  const auto last = static_cast<unsigned char>(block_and_kind.back());
  block_and_kind.remove_suffix(1);
  return static_cast<std::uint32_t>(xxh3(block_and_kind)) ^ (last * 0x6b9083d9U);
}

struct named_block {
  std::string name;
  handle where;
};

/// What a metaindex names, if its checksum is right and it can be read.
std::optional<std::vector<named_block>> blocks_of(std::string_view metaindex) {
  if (metaindex.size() < 4) return std::nullopt;
  const std::uint64_t restarts = number<std::uint32_t>(metaindex.substr(metaindex.size() - 4));
  if (restarts > metaindex.size() / 4 - 1) return std::nullopt;
  std::string_view in = metaindex.substr(0, metaindex.size() - 4 * (restarts + 1));
  std::vector<named_block> found;
  std::string name;
  while (!in.empty()) {
    const auto shared = take_varint(in);
    const auto more = shared ? take_varint(in) : std::nullopt;
    const auto size = more ? take_varint(in) : std::nullopt;
    if (!size || *shared > name.size() || *more > in.size() || *size > in.size() - *more) {
      return std::nullopt;
    }
    name.resize(*shared);
    name += in.substr(0, *more);
    std::string_view value = in.substr(*more, *size);
    const auto where = take_handle(value);
    if (!where) return std::nullopt;
    found.push_back({.name = name, .where = *where});
    in.remove_prefix(*more + *size);
  }
  return found;
}

class table {
 public:
  table(const rocksdb::FSRandomAccessFile& file, std::uint64_t size, IODebugContext* c)
      : file_(file), size_(size), debug_(c) {}

  /// What of it is damaged; empty if nothing is, or if it cannot be read: then see error().
  std::string damage() {
    if (size_ < table_footer_size) return "its end is missing";
    tail_at_ = size_ - std::min<std::uint64_t>(size_, 4096);
    if (!read(tail_at_, size_ - tail_at_, tail_)) return {};
    std::string_view footer(tail_);
    footer.remove_prefix(tail_.size() - table_footer_size);
    std::string_view handles = footer.substr(1, handles_size);
    const auto metaindex = take_handle(handles);
    const auto index = metaindex ? take_handle(handles) : std::nullopt;
    if (footer[0] != xxh3_checksum || !index ||
        handles.find_first_not_of('\0') != std::string_view::npos ||
        number<std::uint32_t>(footer.substr(1 + handles_size)) != version ||
        number<std::uint64_t>(footer.substr(5 + handles_size)) != magic ||
        !ends_at(*metaindex, size_ - table_footer_size) || !ends_before(*index, metaindex->at)) {
      return "its footer";
    }
    std::string memory;
    const auto names = read_block(*metaindex, memory);
    if (!names) return damaged("its metaindex");
    // The last byte says how it is compressed. It never is, up to now.
    if (names->back() != 0) return {};
    const auto blocks = blocks_of(names->substr(0, names->size() - 1));
    if (!blocks) return "its metaindex";
    for (const named_block& b : *blocks) {
      if (!ends_before(b.where, metaindex->at)) return "its metaindex";
      if (!read_block(b.where, memory)) return damaged("its block " + b.name);
    }
    return {};
  }

  const IOStatus& error() const noexcept { return error_; }

 private:
  std::string damaged(std::string what) const { return error_.ok() ? std::move(what) : ""; }
  static bool ends_at(const handle& h, std::uint64_t end) {
    return ends_before(h, end) && h.at + h.size + trailer_size == end;
  }
  static bool ends_before(const handle& h, std::uint64_t end) {
    return h.at <= end && end - h.at >= trailer_size && h.size <= end - h.at - trailer_size;
  }

  bool read(std::uint64_t at, std::uint64_t size, std::string& to) {
    to.resize(size);
    Slice found;
    error_ = file_.Read(at, size, IOOptions(), &found, to.data(), debug_);
    if (!error_.ok()) return false;
    if (found.size() != size) {
      error_ = IOStatus::Corruption("it is shorter than it was");
      return false;
    }
    if (found.data() != to.data()) to.assign(found.data(), found.size());
    return true;
  }

  /// The block and its kind; nothing if its checksum is wrong, or if it cannot be read.
  std::optional<std::string_view> read_block(const handle& h, std::string& memory) {
    std::string_view found;
    if (h.at >= tail_at_) {
      found = std::string_view(tail_).substr(h.at - tail_at_, h.size + trailer_size);
    } else {
      if (!read(h.at, h.size + trailer_size, memory)) return std::nullopt;
      found = memory;
    }
    const std::string_view block = found.substr(0, h.size + 1);
    if (number<std::uint32_t>(found.substr(h.size + 1)) != checksum_of(block)) return std::nullopt;
    return block;
  }

  const rocksdb::FSRandomAccessFile& file_;
  std::uint64_t size_;
  IODebugContext* debug_;
  std::uint64_t tail_at_{0};
  std::string tail_;
  IOStatus error_;
};

class checking_file_system final : public rocksdb::FileSystemWrapper {
 public:
  checking_file_system() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}

  const char* Name() const override { return "verge: checked tables"; }

  IOStatus NewRandomAccessFile(const std::string& path, const rocksdb::FileOptions& o,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* made,
                               IODebugContext* c) override {
    IOStatus s = FileSystemWrapper::NewRandomAccessFile(path, o, made, c);
    if (!s.ok() || !std::string_view(path).ends_with(".sst")) return s;
    std::uint64_t size = 0;
    s = FileSystemWrapper::GetFileSize(path, IOOptions(), &size, c);
    if (!s.ok()) return s;
    table opened(**made, size, c);
    if (const std::string what = opened.damage(); !what.empty()) {
      made->reset();
      return IOStatus::Corruption(path + " is damaged", what);
    }
    return opened.error();
  }
};

}  // namespace

std::shared_ptr<rocksdb::FileSystem> file_system_with_checked_tables() {
  return std::make_shared<checking_file_system>();
}

}  // namespace verge::server
