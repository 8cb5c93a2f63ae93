// SPDX-License-Identifier: Apache-2.0

#include "log_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string_view>

#include "store.h"

namespace verge::server {

namespace {

namespace fs = std::filesystem;

// The format of RocksDB's logs: blocks of 32 KiB with records that do not cross their borders. A
// record has a checksum, a length and a kind in front; a batch is one record, or a first one, some
// middle ones and a last one.
constexpr std::size_t block_size = 32768;
constexpr std::size_t header_size = 7;
enum kind : unsigned char { nothing = 0, full = 1, first = 2, middle = 3, last = 4 };
constexpr std::size_t sector = 512;

/// CRC-32C, eight bytes at a time.
class checksum {
 public:
  checksum() {
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) != 0 ? 0x82f63b78U : 0);
      table_[0][i] = c;
    }
    for (std::size_t t = 1; t < 8; ++t) {
      for (std::size_t i = 0; i < 256; ++i) {
        table_[t][i] = (table_[t - 1][i] >> 8) ^ table_[0][table_[t - 1][i] & 0xff];
      }
    }
  }

  /// As it stands in a header: RocksDB turns and adds, so that a log within a log is no log.
  std::uint32_t of(std::string_view bytes) const {
    const std::uint32_t c = plain(bytes);
    return ((c >> 15) | (c << 17)) + 0xa282ead8U;
  }

 private:
  std::uint32_t plain(std::string_view bytes) const {
    std::uint32_t c = 0xffffffffU;
    for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
      std::uint64_t n = 0;
      std::memcpy(&n, bytes.data(), 8);
      n ^= c;
      c = table_[7][n & 0xff] ^ table_[6][(n >> 8) & 0xff] ^ table_[5][(n >> 16) & 0xff] ^
          table_[4][(n >> 24) & 0xff] ^ table_[3][(n >> 32) & 0xff] ^ table_[2][(n >> 40) & 0xff] ^
          table_[1][(n >> 48) & 0xff] ^ table_[0][n >> 56];
    }
    for (const char b : bytes) c = (c >> 8) ^ table_[0][(c ^ static_cast<unsigned char>(b)) & 0xff];
    return ~c;
  }

  std::array<std::array<std::uint32_t, 256>, 8> table_{};
};

/// Reads a file whole. Mapped into memory, an error of the disk would be a signal.
std::string read_file(const std::string& path) {
  const auto failed = [&](int error) {
    return store_error("reading " + path + " failed: " + std::generic_category().message(error) +
                       "; see that the disk works");
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw failed(errno);
  std::string bytes;
  struct stat about {};
  int error = ::fstat(fd, &about) == 0 ? 0 : errno;
  if (error == 0) bytes.resize(static_cast<std::size_t>(about.st_size));
  for (std::size_t at = 0; error == 0 && at < bytes.size();) {
    const ssize_t n = ::pread(fd, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
    if (n > 0) at += static_cast<std::size_t>(n);
    if (n == 0) bytes.resize(at);  // it was shorter
    if (n < 0 && errno != EINTR) error = errno;
  }
  ::close(fd);
  if (error != 0) throw failed(error);
  return bytes;
}

class log_reader {
 public:
  /// `zeroed`: zeros may have been written ahead of what is logged.
  log_reader(std::string_view log, bool zeroed)
      : log_(log), end_(zeroed ? log.find_last_not_of('\0') + 1 : log.size()) {}  // npos + 1 is 0

  enum class finding : std::uint8_t {
    whole,
    zeros,  ///< behind good() are only zeros that were written ahead
    torn,   ///< behind good() is a part of a batch
    damaged
  };

  /// `several`: more than one batch may have been on its way to the disk.
  finding examine(bool several) {
    if (read_all()) return good_ < log_.size() && end_ <= good_ ? finding::zeros : finding::whole;
    const std::size_t next = next_batch_after(bad_);
    if (next != end_ && !several) return finding::damaged;
    if (has_hole(good_, next)) return finding::torn;
    if (next != end_) return finding::damaged;
    if (!runs_over_the_end(bad_) || is_whole_with_another_length(bad_)) return finding::damaged;
    return finding::torn;  // its end is missing
  }

  /// Where the last batch ends that can be read, and where the first record is that cannot.
  std::size_t good() const noexcept { return good_; }
  /// Behind the last byte that is no zero.
  std::size_t end() const noexcept { return std::max(end_, good_); }
  std::size_t bad() const noexcept { return bad_; }

 private:
  std::size_t left_in_block(std::size_t at) const { return block_size - at % block_size; }
  unsigned byte(std::size_t at) const { return static_cast<unsigned char>(log_[at]); }
  std::size_t length_at(std::size_t at) const { return byte(at + 4) | (byte(at + 5) << 8); }
  std::uint32_t checksum_at(std::size_t at) const {
    std::uint32_t n = 0;
    std::memcpy(&n, log_.data() + at, sizeof n);
    return n;
  }
  bool checks(std::size_t at, std::size_t length) const {
    static const checksum sum;
    return checksum_at(at) == sum.of(log_.substr(at + header_size - 1, length + 1));
  }
  bool is_record(std::size_t at) const {
    if (log_.size() - at < header_size || left_in_block(at) < header_size) return false;
    const std::size_t length = length_at(at);
    return length <= left_in_block(at) - header_size && length <= log_.size() - at - header_size &&
           checks(at, length);
  }

  /// False at the first record that cannot be read or is out of turn, which is then `bad_`. Zeros
  /// up to the end of the file are no records.
  bool read_all() {
    bool within = false;  // a batch of several records
    std::size_t at = 0;
    while (at < log_.size() && (at < end_ || within)) {
      if (left_in_block(at) < header_size) {
        at = std::min(log_.size(), at + left_in_block(at));
        continue;
      }
      bad_ = at;
      if (!is_record(at)) return false;
      const unsigned what = byte(at + 6);
      // Kinds that this does not know are RocksDB's to judge.
      if (what == nothing || what > last) return what != nothing;
      if (within != (what == middle || what == last)) return false;
      at += header_size + length_at(at);
      within = what == first || what == middle;
      if (!within) good_ = at;
    }
    return true;
  }

  /// Or the end.
  std::size_t next_batch_after(std::size_t at) const {
    for (++at; at + header_size <= end_; ++at) {
      const unsigned what = byte(at + 6);
      if ((what == full || what == first) && length_at(at) != 0 && is_record(at)) return at;
    }
    return end_;
  }

  /// Whether a sector reads as zeros, or the part of one that is in this range. A few last bytes of
  /// the log do not count: batches end with small numbers, and a lost last sector shortens the log.
  bool has_hole(std::size_t at, std::size_t end) const {
    constexpr std::size_t few = 64;
    while (at < end) {
      const std::size_t n = std::min(sector - at % sector, end - at);
      if (at + n == end_ && n < few) return false;
      if (log_.substr(at, n).find_first_not_of('\0') == std::string_view::npos) return true;
      at += n;
    }
    return false;
  }

  bool runs_over_the_end(std::size_t at) const {
    if (at + header_size > end_) return true;
    return length_at(at) > end_ - at - header_size &&
           length_at(at) <= left_in_block(at) - header_size;
  }

  bool is_whole_with_another_length(std::size_t at) const {
    if (at + header_size > end_) return false;
    return checks(at, end_ - at - header_size);
  }

  std::string_view log_;
  std::size_t end_;  ///< behind the last byte that counts
  std::size_t good_{0};
  std::size_t bad_{0};
};

void cut(const std::string& path, std::size_t size) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const bool done = fd >= 0 && ::ftruncate(fd, static_cast<off_t>(size)) == 0 && ::fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!done) {
    throw store_error("cutting the torn end off " + path +
                      " failed: " + std::generic_category().message(error) +
                      "; see that the disk works, and may be written");
  }
}

enum class role : std::uint8_t {
  manifest,  ///< grows, and several of its batches may be on their way to the disk at once
  last_log,
  last_unsynced,  ///< has zeros written ahead or not, and any number of batches on their way
  older_log       ///< all of it was synced before the next one was begun
};

void examine(const std::string& path, role as, std::vector<log_cut>& cuts) {
  using enum log_reader::finding;
  const std::string log = read_file(path);
  log_reader reader(log, as != role::manifest);
  const auto found = reader.examine(as == role::manifest || as == role::last_unsynced);
  if (found == damaged || (found == torn && as == role::older_log)) {
    throw store_error("opening failed: " + path + " is damaged at byte " +
                      std::to_string(reader.bad()) +
                      ", and not by a loss of power: restore a backup");
  }
  if (found != torn && found != zeros) return;
  cuts.push_back({.path = path,
                  .size = reader.good(),
                  .dropped = found == torn ? reader.end() - reader.good() : 0});
}

/// The number of a log in its name; 0 if it has none.
std::uint64_t number_of(const fs::path& log) {
  const std::string name = log.stem().string();
  std::uint64_t n = 0;
  std::from_chars(name.data(), name.data() + name.size(), n);
  return n;
}

}  // namespace

std::vector<log_cut> examine_log_tails(const std::string& directory, bool unsynced) {
  std::vector<log_cut> cuts;
  if (!fs::is_directory(directory)) return cuts;
  bool has_data = false;
  std::map<std::uint64_t, std::string> logs;
  for (const auto& file : fs::directory_iterator(directory)) {
    const auto extension = file.path().extension();
    has_data |= extension == ".sst" || (extension == ".log" && file.file_size() != 0);
    if (extension == ".log") logs[number_of(file.path())] = file.path().string();
  }
  std::string manifest;
  if (fs::exists(directory + "/CURRENT")) manifest = read_file(directory + "/CURRENT");
  manifest = manifest.substr(0, manifest.find('\n'));
  // RocksDB would begin anew, and remove what there is.
  if (manifest.empty() && has_data) {
    throw store_error(
        "opening " + directory +
        " failed: there are tasks, but the file CURRENT is missing or empty: restore a "
        "backup, or that file, with the name of the newest MANIFEST in it");
  }
  const std::string path = directory + "/" + manifest;
  if (!manifest.empty() && fs::is_regular_file(path)) examine(path, role::manifest, cuts);
  const role last = unsynced ? role::last_unsynced : role::last_log;
  for (const auto& [number, log] : logs) {
    examine(log, number == logs.rbegin()->first ? last : role::older_log, cuts);
  }
  return cuts;
}

void cut_logs(const std::vector<log_cut>& cuts) {
  for (const log_cut& c : cuts) cut(c.path, c.size);
}

}  // namespace verge::server
