// SPDX-License-Identifier: Apache-2.0
// delay_queue: buckets ordered by expiry.
//
// Because of it a timing wheel need not tick: the driver sleeps until the first bucket here
// expires, however many empty ticks come before it. It is a heap of buckets, of which there are
// few; it does not know their timers.
#pragma once

#include <cstddef>
#include <cstdint>

#include <queue/quad_heap.h>
#include <queue/wheel_bucket.h>

namespace verge::detail {

class delay_queue {
 public:
  [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }
  [[nodiscard]] wheel_bucket& first() const noexcept { return *heap_.front().node; }
  [[nodiscard]] std::int64_t first_expiry() const noexcept { return heap_.front().when; }
  [[nodiscard]] std::size_t size() const noexcept { return heap_.size(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return heap_.bytes(); }
  [[nodiscard]] static bool has(const wheel_bucket& b) noexcept {
    return b.index != wheel_bucket::none;
  }

  /// Reserves room for that many buckets in total. Throws std::bad_alloc.
  void reserve(std::size_t buckets) { heap_.reserve(buckets); }
  /// Adds a bucket that is not queued. Throws std::bad_alloc.
  void offer(wheel_bucket& b, std::int64_t expiry) {
    heap_.push(expiry, &b);
    b.expiry = expiry;
  }
  void remove(wheel_bucket& b) noexcept {
    heap_.remove(b.index);
    b.index = wheel_bucket::none;
  }
  /// Removes and returns the first bucket if it has expired by `now`.
  wheel_bucket* poll(std::int64_t now) noexcept {
    if (heap_.empty() || heap_.front().when > now) return nullptr;
    wheel_bucket* b = heap_.front().node;
    heap_.pop();
    b->index = wheel_bucket::none;
    return b;
  }
  [[nodiscard]] bool verify() const noexcept { return heap_.verify(); }

 private:
  /// A wheel has at most three levels of 2^24 buckets, or more levels of fewer.
  struct place {
    static void set(wheel_bucket& b, std::size_t i) noexcept {
      b.index = static_cast<std::uint32_t>(i);
    }
    static std::size_t get(const wheel_bucket& b) noexcept { return b.index; }
  };
  quad_heap<wheel_bucket, place> heap_;
};

}  // namespace verge::detail
