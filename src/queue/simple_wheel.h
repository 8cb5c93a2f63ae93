// SPDX-License-Identifier: Apache-2.0
// simple_wheel: a ring of buckets, one per tick.
//
//      hand
//       |
//   [ ][*][ ][ ][ ][ ][ ]      a timer that is due 3 ticks from now is 3 buckets from the hand;
//             |                 each tick moves the hand by one, and the bucket under it is due
//            due
//
// Starting and stopping a timer takes constant time: its bucket is found by one division and is a
// doubly-linked list. The price is a span: a delay of more than size x tick has no bucket. A naive
// wheel puts it in the bucket modulo size, where it fires a turn or more early; this one rejects
// it. And a thread must wake at every tick while there is any timer, even for empty buckets.
//
// A timer fires at the first tick that is not before its time: up to a tick late, never early. The
// wheel knows neither threads nor the clock; its owner locks and passes the time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include <queue/due_timer.h>
#include <queue/timer_list.h>
#include <queue/wheel_shape.h>

namespace verge::detail {

class simple_wheel {
 public:
  using hook = list_hook;
  using due = due_timer<hook>;

  /// Throws std::invalid_argument for an invalid tick or size, and std::bad_alloc.
  explicit simple_wheel(wheel_shape shape) : shape_(shape) {
    check_shape("simple wheel", shape);
    buckets_ = std::make_unique<timer_list[]>(ring_);
  }

  [[nodiscard]] static bool waits(const hook& t) noexcept { return t.list != nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return ring_ * sizeof(timer_list); }
  /// The longest delay that has a bucket.
  [[nodiscard]] std::int64_t span() const noexcept {
    return shape_.tick * static_cast<std::int64_t>(shape_.size);
  }

  /// The next tick if there is any timer, otherwise 0.
  [[nodiscard]] std::int64_t next() const noexcept {
    if (size_ == 0) return 0;
    return due_.empty() ? (hand_ + 1) * shape_.tick : hand_ * shape_.tick;
  }

  /// The tick at which the first timer fires, found by scanning the buckets; 0 if there is none.
  /// For simulated time, where no thread wakes for empty ticks.
  [[nodiscard]] std::int64_t next_exactly() const noexcept {
    if (size_ == 0) return 0;
    std::int64_t tick = hand_;
    if (due_.empty()) {
      do ++tick;
      while (buckets_[static_cast<std::size_t>(tick) % ring_].empty());
    }
    return tick * shape_.tick;
  }

  /// `now` must not be ahead of the time passed to pop_due, or timers would be early. Throws
  /// std::invalid_argument, naming the span, for a time or a period beyond it.
  template <class Now>
  void insert(hook& t, std::int64_t when, std::int64_t period, Now&& read_now) {
    const std::int64_t now = read_now();
    turn(now);
    check(when, period, now);
    put(t, when, period);
    ++size_;
  }

  /// The same for a pending timer, which stays as it was if the new time is rejected.
  template <class Now>
  void move(hook& t, std::int64_t when, std::int64_t period, Now&& read_now) {
    const std::int64_t now = read_now();
    turn(now);
    check(when, period, now);
    t.list->remove(t);
    put(t, when, period);
  }

  void erase(hook& t) noexcept {
    t.list->remove(t);
    --size_;
  }

  due pop_due(std::int64_t now) noexcept {
    turn(now);
    return pop();
  }

  due pop_any() noexcept {
    for (std::size_t i = 0; due_.empty() && i < ring_; ++i) move_to_due(buckets_[i]);
    return pop();
  }

  /// Calls f(timer, when) for each.
  template <class F>
  void for_each(F&& f) const {
    for (const hook* t = due_.first(); t != nullptr; t = t->next) f(*t, t->when);
    for (std::size_t i = 0; i < ring_; ++i) {
      for (const hook* t = buckets_[i].first(); t != nullptr; t = t->next) f(*t, t->when);
    }
  }

  [[nodiscard]] std::string verify() const {
    std::size_t n = 0;
    if (!due_.verify(n)) return "the list of due timers is broken";
    for (std::size_t i = 0; i < ring_; ++i) {
      if (!buckets_[i].verify(n)) return "a bucket's list is broken";
      for (const hook* t = buckets_[i].first(); t != nullptr; t = t->next) {
        const std::int64_t tick = tick_at_or_after(t->when, shape_.tick);
        if (tick > hand_ && static_cast<std::size_t>(tick) % ring_ != i) {
          return "a timer is in a bucket that is not its own";
        }
      }
    }
    return n == size_ ? "" : "the number of timers is not what was counted";
  }

 private:
  timer_list& bucket(std::int64_t tick) noexcept {
    return buckets_[static_cast<std::size_t>(tick) % ring_];
  }

  void check(std::int64_t when, std::int64_t period, std::int64_t now) const {
    // Checked now: the next time is computed when this one fires, when no caller could be told.
    if (period > span()) refuse("a period of " + std::to_string(period) + " ns");
    // One tick more than the span: the time was read a moment ago, and rounded down. For the same
    // reason this is not exactly the requested delay, and is reported in ticks.
    const std::int64_t delay = when - now;
    if (delay > span() + shape_.tick) {
      const std::int64_t up = delay % shape_.tick >= shape_.tick / 2 ? 1 : 0;
      refuse("a delay of about " + std::to_string(delay / shape_.tick + up) + " ticks");
    }
  }

  void put(hook& t, std::int64_t when, std::int64_t period) noexcept {
    const std::int64_t tick = tick_at_or_after(when, shape_.tick);
    t.when = when;
    t.periodic = period != 0;
    (tick > hand_ ? bucket(tick) : due_).push_back(t);
  }

  due pop() noexcept {
    hook* const t = due_.pop_front();
    if (t == nullptr) return {};
    --size_;
    return {t, t->when, t->periodic};
  }

  void move_to_due(timer_list& from) noexcept {
    while (hook* t = from.pop_front()) due_.push_back(*t);
  }

  /// Moves the hand to `now`. The buckets it passes are due.
  void turn(std::int64_t now) noexcept {
    const std::int64_t tick = now / shape_.tick;
    if (size_ == 0) {
      if (tick > hand_) hand_ = tick;
      return;
    }
    // More than a whole turn visits every bucket once, from the hand on: in the order of their
    // times.
    const std::int64_t last = std::min(tick, hand_ + static_cast<std::int64_t>(ring_));
    while (hand_ < last) move_to_due(bucket(++hand_));
    hand_ = std::max(hand_, tick);
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw std::invalid_argument(
        "verge: " + what + " is beyond the span of the simple wheel, which is " +
        std::to_string(span()) + " ns (" + std::to_string(shape_.size) + " ticks of " +
        std::to_string(shape_.tick) +
        " ns); give it a longer tick or more buckets, or choose the timing wheel");
  }

  const wheel_shape shape_;
  /// The span begins and ends between two ticks, so it touches one bucket more than its size; one
  /// more for the current tick, and one for the extra tick that is allowed.
  const std::size_t ring_ = shape_.size + 3;
  std::unique_ptr<timer_list[]> buckets_;
  timer_list due_;
  std::int64_t hand_{0};  ///< the last tick that has passed
  std::size_t size_{0};   ///< timers, including due ones
};

}  // namespace verge::detail
