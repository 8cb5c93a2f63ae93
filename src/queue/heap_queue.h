// SPDX-License-Identifier: Apache-2.0
// heap_queue: timers in a 4-ary heap with exact removal.
//
// The queue of Go's timers up to 1.13: a timer stores its index in the heap, so that stopping it
// removes it at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <queue/due_timer.h>
#include <queue/quad_heap.h>

namespace verge::detail {

class heap_queue {
 public:
  struct hook {
    std::size_t index{nowhere};
    bool periodic{false};
  };
  using due = due_timer<hook>;

  [[nodiscard]] static bool waits(const hook& t) noexcept { return t.index != nowhere; }
  [[nodiscard]] std::size_t size() const noexcept { return heap_.size(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return heap_.bytes(); }

  /// The time of the first timer; 0 if there is none.
  [[nodiscard]] std::int64_t next() const noexcept {
    return heap_.empty() ? 0 : heap_.front().when;
  }
  [[nodiscard]] std::int64_t next_exactly() const noexcept { return next(); }

  /// Throws std::bad_alloc; then nothing has changed.
  template <class Now>
  void insert(hook& t, std::int64_t when, std::int64_t period, Now&& /*now*/) {
    heap_.push(when, &t);
    t.periodic = period != 0;
  }
  /// The same for a pending timer. Needs no memory.
  template <class Now>
  void move(hook& t, std::int64_t when, std::int64_t period, Now&& now) {
    erase(t);
    insert(t, when, period, now);
  }
  void erase(hook& t) noexcept {
    heap_.remove(t.index);
    t.index = nowhere;
  }
  /// Removes and returns the first timer if it is due.
  due pop_due(std::int64_t now) noexcept {
    if (heap_.empty() || heap_.front().when > now) return {};
    const due first{heap_.front().node, heap_.front().when, heap_.front().node->periodic};
    heap_.pop();
    first.timer->index = nowhere;
    return first;
  }
  /// Removes and returns any timer.
  due pop_any() noexcept { return pop_due(INT64_MAX); }

  /// Calls f(timer, when) for each.
  template <class F>
  void for_each(F&& f) const {
    for (const auto& e : heap_) f(*e.node, e.when);
  }

  [[nodiscard]] std::string verify() const {
    return heap_.verify() ? "" : "the heap is out of order, or a timer has a wrong index";
  }

 private:
  static constexpr std::size_t nowhere = SIZE_MAX;

  struct place {
    static void set(hook& t, std::size_t i) noexcept { t.index = i; }
    static std::size_t get(const hook& t) noexcept { return t.index; }
  };

  quad_heap<hook, place> heap_;
};

}  // namespace verge::detail
