// SPDX-License-Identifier: Apache-2.0
// Maps file descriptors to the sources that the poller calls.
//
// An event may be stale: a polling thread holds a batch of events, and while it processes them
// another thread can close one of their descriptors and open another that gets the same number. So
// events carry no pointer. They carry the number and a generation. The entry for that number, which
// is not moved or freed during the table's lifetime, says whether that generation is still open,
// and keeps it open while its source is being called.
//
// Descriptors are small numbers, the lowest free ones, so the table is an array indexed by them,
// made of segments that double in size: a lookup is two loads, growing moves nothing, and memory is
// at most twice 64 bytes times the highest number in use.
//
// Ground rules
//  - An entry's source and generation are read and written under its lock.
//  - Segments are published by one compare-and-swap; a thread that sees one sees its entries
//    constructed.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>

namespace verge::detail {

template <typename Source>
class source_table {
 public:
  struct entry {
    std::mutex lock;
    /// Counts how often this number was opened.
    std::uint32_t generation{0};
    /// nullptr while the number is not open.
    Source* source{nullptr};
  };

  source_table() = default;
  source_table(const source_table&) = delete;
  source_table& operator=(const source_table&) = delete;
  ~source_table() {
    for (auto& s : segments_) delete[] s.load(std::memory_order_relaxed);
  }

  /// The entry of a number, or nullptr if no number that high was ever open.
  entry* find(int fd) const noexcept {
    if (fd < 0) return nullptr;
    const place p = place_of(fd);
    entry* segment = segments_[p.segment].load(std::memory_order_acquire);
    return segment == nullptr ? nullptr : segment + p.offset;
  }

  /// The entry of a number, created if necessary; nullptr if out of memory.
  entry* find_or_make(int fd) noexcept {
    if (entry* e = find(fd)) return e;
    if (fd < 0) return nullptr;
    const place p = place_of(fd);
    std::unique_ptr<entry[]> made(new (std::nothrow) entry[p.segment_size]);
    if (made == nullptr) return nullptr;
    entry* there = nullptr;
    // Release publishes the entries; acquire is for a segment that another thread created first.
    if (segments_[p.segment].compare_exchange_strong(there, made.get(), std::memory_order_acq_rel,
                                                     std::memory_order_acquire)) {
      there = made.release();
    }
    return there + p.offset;
  }

  /// Calls f for every entry.
  template <class F>
  void for_each(F&& f) {
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      entry* segment = segments_[i].load(std::memory_order_acquire);
      if (segment == nullptr) continue;
      const std::size_t size = i == 0 ? first_size : first_size << (i - 1);
      for (std::size_t j = 0; j < size; ++j) f(segment[j]);
    }
  }

 private:
  static constexpr std::size_t first_size = 64;
  static constexpr std::size_t first_bits = std::bit_width(first_size) - 1;

  struct place {
    std::size_t segment;
    std::size_t segment_size;
    std::size_t offset;
  };
  /// Segment 0 holds [0, 64), segment k the numbers of k + 6 bits.
  static place place_of(int fd) noexcept {
    const auto n = static_cast<std::size_t>(fd);
    if (n < first_size) return {0, first_size, n};
    const auto bits = static_cast<std::size_t>(std::bit_width(n));
    const std::size_t begin = std::size_t{1} << (bits - 1);
    return {bits - first_bits, begin, n - begin};
  }

  std::array<std::atomic<entry*>, 32 - first_bits> segments_{};
};

}  // namespace verge::detail
