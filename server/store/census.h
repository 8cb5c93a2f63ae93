// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "../model/task.h"

/// Counting what is due when, in the index of delayed tasks.
///
/// A census is made by the task that uses the store, and sees the store as it is then. It is taken
/// on another thread, however long that takes, while the store goes on: what changes meanwhile is
/// not in it.
///
/// Ground rules: one thread calls run(), once. `counted` is its own until is_done() is true. The
/// store outlives it.
namespace verge::server {

/// So many steps from `first` on.
struct census_range {
  wall_time first{0};
  nanoseconds step{0};
  std::size_t steps{0};
  wall_time end() const noexcept {
    return due_after(first, static_cast<nanoseconds>(steps) * step);
  }
};

class census {
 public:
  explicit census(const census_range& r) noexcept : range_(r) {}
  census(const census&) = delete;
  census& operator=(const census&) = delete;
  virtual ~census() = default;

  const census_range& range() const noexcept { return range_; }

  /// Blocks.
  void run() noexcept {
    try {
      counted_ = count();
    } catch (...) {
      counted_.reset();  // the store says so elsewhere as well
    }
    done_.store(true, std::memory_order_release);
  }
  /// run() ends soon, without a result. From any thread.
  void give_up() noexcept { over_.store(true); }

  bool is_done() const noexcept { return done_.load(std::memory_order_acquire); }
  /// How many tasks are due in each step; nothing if they could not be counted.
  const std::optional<std::vector<std::uint64_t>>& counted() const noexcept { return counted_; }

 protected:
  virtual std::optional<std::vector<std::uint64_t>> count() = 0;
  bool is_over() const noexcept { return over_.load(std::memory_order_relaxed); }

 private:
  const census_range range_;
  std::optional<std::vector<std::uint64_t>> counted_;
  std::atomic<bool> done_{false};
  std::atomic<bool> over_{false};
};

}  // namespace verge::server
