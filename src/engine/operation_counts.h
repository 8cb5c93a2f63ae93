// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include <memory/thread_slot.h>

namespace verge::detail {

/// How often timers were started, stopped and reset since the runtime was created. A timer that is
/// reset while it is not pending counts as started, so that pending timers are those that were
/// started less those that were stopped and those that have fired.
struct timer_totals {
  std::uint64_t started{0};
  std::uint64_t stopped{0};
  std::uint64_t reset{0};

  timer_totals& operator+=(const timer_totals& other) noexcept {
    started += other.started;
    stopped += other.stopped;
    reset += other.reset;
    return *this;
  }
};

/// Counts them for engines that do not do so themselves: each thread on a line of its own, in its
/// thread_slot; threads that have no slot, or not yet, share the last line.
class operation_counts {
 public:
  void started() noexcept {
    add([](line & l) -> auto& { return l.started; });
  }
  void stopped() noexcept {
    add([](line & l) -> auto& { return l.stopped; });
  }
  void reset() noexcept {
    add([](line & l) -> auto& { return l.reset; });
  }

  timer_totals sum() const noexcept {
    timer_totals all;
    for (const line& l : lines_) {
      all += {.started = l.started.load(std::memory_order_relaxed),
              .stopped = l.stopped.load(std::memory_order_relaxed),
              .reset = l.reset.load(std::memory_order_relaxed)};
    }
    return all;
  }

 private:
  struct alignas(64) line {
    std::atomic<std::uint64_t> started{0};
    std::atomic<std::uint64_t> stopped{0};
    std::atomic<std::uint64_t> reset{0};
  };

  template <class Which>
  void add(Which which) noexcept {
    const std::uint32_t slot = thread_slot();
    if (slot >= thread_slot_count) [[unlikely]] {
      // Its first operation, or a thread that gets no slot.
      which(lines_[thread_slot_count]).fetch_add(1, std::memory_order_relaxed);
      return;
    }
    auto& mine = which(lines_[slot]);
    mine.store(mine.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  std::array<line, thread_slot_count + 1> lines_;
};

}  // namespace verge::detail
