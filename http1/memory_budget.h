// SPDX-License-Identifier: Apache-2.0
// A limit on the memory of the buffers of all connections.
//
//   http::memory_budget budget(512 << 20);
//   http::memory_share mine(budget, 8 << 10);              // one per connection
//   if (!mine.hold(http::memory_share::request, 1 << 20))  // there is no room
//     ...
//   mine.hold(http::memory_share::request, 0);             // freed
//
// It only counts: a share is told what its connection has allocated, or is about to.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

namespace http {

class memory_budget {
 public:
  explicit memory_budget(std::size_t limit) noexcept : limit_(limit) {}
  memory_budget(const memory_budget&) = delete;
  memory_budget& operator=(const memory_budget&) = delete;

  std::size_t limit() const noexcept { return limit_; }
  std::size_t used() const noexcept { return used_.load(std::memory_order_relaxed); }

 private:
  friend class memory_share;
  bool take(std::size_t bytes) noexcept;
  void take_always(std::size_t bytes) noexcept;
  void give(std::size_t bytes) noexcept;
  void note_most(std::size_t now) noexcept;

  const std::size_t limit_;
  // Counters that publish nothing: relaxed order suffices for both.
  std::atomic<std::size_t> used_{0};
  /// The largest value of used_ since memory was last returned to the system.
  std::atomic<std::size_t> most_{0};
};

/// One connection's part of a budget. Not thread-safe.
class memory_share {
 public:
  /// The kinds of memory of a connection.
  enum part { request, answer };

  /// `always` counts for the lifetime of the share, even if there is no room for it: the number of
  /// connections is limited elsewhere.
  memory_share(memory_budget& of, std::size_t always) noexcept;
  ~memory_share() { budget_.give(always_ + parts_[request] + parts_[answer]); }
  memory_share(const memory_share&) = delete;
  memory_share& operator=(const memory_share&) = delete;

  /// Sets the size of this part to `bytes`. Returns false and changes nothing if the budget has no
  /// room. Never fails if it is less than before.
  bool hold(part p, std::size_t bytes) noexcept;

 private:
  memory_budget& budget_;
  const std::size_t always_;
  std::array<std::size_t, 2> parts_{};
};

}  // namespace http
