// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <base/ready_list.h>
#include <verge/detail/scheduling.h>

/// A processor's local run queue: a ring of 256 that its worker fills and drains without a lock,
/// that other workers may steal half of, and a slot for the one that runs next.
///
/// Ground rules
///  - push, push_all, push_next, take, take_next and spill belong to the worker that holds the
///    processor.
///  - steal_half may be called by any worker, into the queue of its own processor.
///  - `tail_` is written by the owner alone; its release publishes the slot written before it.
///  - `head_` is moved by compare-and-swap, by the owner and by thieves. The thread that moves it
///    owns the slots it passed over. A thief may read a slot that the owner is just overwriting;
///    its compare-and-swap fails then, so what it read is never used. Slots are atomic for that
///    reason.
///  - `next_` is emptied by exchange: the owner at any time, a thief in the last round of stealing.
namespace verge::detail {

class run_queue {
 public:
  static constexpr std::uint32_t capacity = 256;

  /// Appends r. False if there is no room: the caller spills to the global queue.
  bool push(runnable& r) noexcept {
    const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) >= capacity) return false;
    slots_[tail % capacity].store(&r, std::memory_order_relaxed);
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }

  /// Appends from the front of the list as many as there is room for.
  void push_all(ready_list& list) noexcept {
    const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
    const std::uint32_t room = capacity - (tail - head_.load(std::memory_order_acquire));
    std::uint32_t n = 0;
    for (; n < room && !list.empty(); ++n) {
      slots_[(tail + n) % capacity].store(list.pop_front(), std::memory_order_relaxed);
    }
    tail_.store(tail + n, std::memory_order_release);
  }

  /// Puts r into the slot that runs next and returns what was there, if anything was.
  runnable* push_next(runnable& r) noexcept {
    return next_.exchange(&r, std::memory_order_acq_rel);
  }

  /// Takes what runs next out of its slot.
  runnable* take_next() noexcept {
    if (next_.load(std::memory_order_relaxed) == nullptr) return nullptr;
    return next_.exchange(nullptr, std::memory_order_acq_rel);
  }

  /// Takes the oldest of the ring, and says which place it had.
  runnable* take(std::uint32_t& place) noexcept {
    std::uint32_t head = head_.load(std::memory_order_acquire);
    while (head != tail_.load(std::memory_order_relaxed)) {
      runnable* r = slots_[head % capacity].load(std::memory_order_relaxed);
      if (head_.compare_exchange_weak(head, head + 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
        place = head;
        return r;
      }
    }
    return nullptr;
  }
  runnable* take() noexcept {
    std::uint32_t place = 0;
    return take(place);
  }
  /// The place that the next push() takes: places are numbered in order, and wrap around.
  std::uint32_t next_place() const noexcept { return tail_.load(std::memory_order_relaxed); }

  /// Takes the older half of a full ring. Empty if a thief came first, so that there is room now.
  ready_list spill() noexcept {
    std::uint32_t head = head_.load(std::memory_order_acquire);
    const std::uint32_t n = (tail_.load(std::memory_order_relaxed) - head) / 2;
    if (n == 0) return {};
    std::array<runnable*, capacity / 2> taken;
    for (std::uint32_t i = 0; i < n; ++i) {
      taken[i] = slots_[(head + i) % capacity].load(std::memory_order_relaxed);
    }
    if (!head_.compare_exchange_strong(head, head + n, std::memory_order_acq_rel,
                                       std::memory_order_relaxed)) {
      return {};
    }
    ready_list list;
    for (std::uint32_t i = 0; i < n; ++i) list.push_back(*taken[i]);
    return list;
  }

  /// Moves half of `from` here and returns one of them to run at once; nullptr if there was
  /// nothing. With `also_next`, takes even what `from` would run next, if its ring is empty.
  runnable* steal_half(run_queue& from, bool also_next) noexcept {
    const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
    for (;;) {
      std::uint32_t head = from.head_.load(std::memory_order_acquire);
      const std::uint32_t from_tail = from.tail_.load(std::memory_order_acquire);
      std::uint32_t n = from_tail - head;
      n -= n / 2;
      if (n == 0) return also_next ? from.take_next() : nullptr;
      if (n > capacity / 2) continue;  // head and tail were not read at one moment
      // The thief's own queue is empty or nearly so: a worker steals when it has nothing to run.
      if (tail + n - head_.load(std::memory_order_acquire) > capacity) return nullptr;
      for (std::uint32_t i = 0; i < n; ++i) {
        slots_[(tail + i) % capacity].store(
            from.slots_[(head + i) % capacity].load(std::memory_order_relaxed),
            std::memory_order_relaxed);
      }
      if (!from.head_.compare_exchange_weak(head, head + n, std::memory_order_acq_rel,
                                            std::memory_order_relaxed)) {
        continue;
      }
      runnable* r = slots_[(tail + n - 1) % capacity].load(std::memory_order_relaxed);
      if (n > 1) tail_.store(tail + n - 1, std::memory_order_release);
      return r;
    }
  }

  /// Whether it is empty. From any thread; the answer may be old. A push_next that moves the old
  /// next into the ring could show neither for a moment, so look until nothing moves.
  bool empty() const noexcept {
    for (;;) {
      const std::uint32_t head = head_.load(std::memory_order_acquire);
      const std::uint32_t tail = tail_.load(std::memory_order_acquire);
      const runnable* next = next_.load(std::memory_order_acquire);
      if (tail == tail_.load(std::memory_order_acquire)) return head == tail && next == nullptr;
    }
  }

  std::uint32_t size() const noexcept {
    const std::uint32_t head = head_.load(std::memory_order_relaxed);
    return tail_.load(std::memory_order_relaxed) - head;
  }

 private:
  alignas(64) std::atomic<std::uint32_t> head_{0};
  alignas(64) std::atomic<std::uint32_t> tail_{0};
  std::atomic<runnable*> next_{nullptr};
  std::array<std::atomic<runnable*>, capacity> slots_{};
};

}  // namespace verge::detail
