// SPDX-License-Identifier: Apache-2.0
// timing_wheel: hierarchical wheels, created on demand, with a delay queue in place of a tick.
//
//   level 1   [    ][ 40 ][    ] ...      one bucket is as long as all of level 0
//                    |
//                    v  when the bucket expires its timers move down a level
//   level 0   [ ][ ][ ][*][ ][ ] ...      one bucket is a tick; what expires here fires
//
//   delay queue: the buckets that have timers, by expiry. Its first one says when to wake.
//
// The design of Kafka's timer. Starting and stopping a timer takes constant time, for any number of
// timers and any delay: a timer that is n ticks away is put on the wheel that reaches that far, and
// moves down at most log(n) levels before it fires. No thread wakes for an empty tick. A bucket is
// added to the delay queue with its first timer, and removed if the last one is stopped.
//
// A timer fires at the first tick that is not before its time: up to a tick late, never early. The
// wheel knows neither threads nor the clock; its owner locks and passes the time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <queue/delay_queue.h>
#include <queue/divisor.h>
#include <queue/wheel_shape.h>

namespace verge::detail {

class timing_wheel {
 public:
  using hook = wheel_hook;
  using due = due_timer<hook>;

  /// Throws std::invalid_argument for an invalid tick or size, and std::bad_alloc.
  explicit timing_wheel(wheel_shape shape, page_source& pages = system_pages())
      : shape_(checked(shape)),
        by_tick_(shape.tick),
        by_size_(static_cast<std::int64_t>(shape.size)),
        last_tick_(by_tick_.quotient(std::numeric_limits<std::int64_t>::max() - 1)),
        chunks_(pages) {
    add_level();
    turn_to(0);
  }

  [[nodiscard]] static bool waits(const hook& t) noexcept { return wheel_chunks::waits(t); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return levels_.size() * shape_.size * sizeof(wheel_bucket) + delays_.bytes() + chunks_.bytes();
  }
  [[nodiscard]] std::size_t levels() const noexcept { return levels_.size(); }

  /// The expiry of the first bucket; 0 if there is none.
  [[nodiscard]] std::int64_t next() const noexcept {
    if (!due_->empty()) return now_ == 0 ? 1 : now_;
    return delays_.empty() ? 0 : delays_.first_expiry();
  }
  [[nodiscard]] std::int64_t next_exactly() const noexcept { return next(); }

  /// `now` must not be ahead of the time passed to pop_due, or timers would be early. Throws
  /// std::bad_alloc; then nothing has changed.
  template <class Now>
  void insert(hook& t, std::int64_t when, std::int64_t period, Now&& now) {
    if (size_ == 0) catch_up(now());
    if (!put({.timer = &t, .when = when, .periodic = period != 0})) throw std::bad_alloc();
    ++size_;
  }

  /// The same for a pending timer.
  template <class Now>
  void move(hook& t, std::int64_t when, std::int64_t period, Now&& now) {
    if (size_ == 1) catch_up(now());
    const hook before = t;
    if (!put({.timer = &t, .when = when, .periodic = period != 0})) throw std::bad_alloc();
    remove(before);
  }

  void erase(hook& t) noexcept {
    remove(t);
    t.bucket = 0;
    --size_;
  }

  /// Removes and returns a due timer.
  due pop_due(std::int64_t now) noexcept {
    while (due_->empty()) {
      wheel_bucket* const b = delays_.poll(now);
      if (b == nullptr) return {};
      turn_to(b->expiry);
      if (b == due_ || bring_down(*b)) continue;
      if (fires_at(chunks_.front(*b).when) <= now_) return pop_late(*b);
    }
    return pop(*due_);
  }

  /// Removes and returns any timer.
  due pop_any() noexcept {
    if (size_ == 0) return {};
    return pop(due_->empty() ? delays_.first() : *due_);
  }

  /// Calls f(timer, when) for each.
  template <class F>
  void for_each(F&& f) const {
    for (const level& l : levels_) {
      for (std::size_t at = 0; at < shape_.size; ++at) {
        chunks_.for_each(l.buckets[at], [&](const due& t) { f(*t.timer, t.when); });
      }
    }
  }

  [[nodiscard]] std::string verify() const {
    std::size_t timers = 0;
    std::size_t chunks = 0;
    std::size_t queued = 0;
    if (!delays_.verify()) return "the delay queue is out of order";
    for (std::size_t n = 0; n < levels_.size() * shape_.size; ++n) {
      const std::size_t at = n % shape_.size;
      const level& l = levels_[n / shape_.size];
      const wheel_bucket& b = l.buckets[at];
      if (!chunks_.verify(b, number_of(n / shape_.size, at), timers, chunks)) {
        return "a bucket's chunks are broken";
      }
      queued += delay_queue::has(b);
      if (b.empty() ? delay_queue::has(b) : !delay_queue::has(b) && &b != due_) {
        return "a bucket with timers is not in the delay queue, or one without is";
      }
      bool all_belong = true;
      chunks_.for_each(b, [&](const due& t) {
        const std::int64_t fires = fires_at(t.when);
        if (&b == due_ ? fires > now_ : fires < b.expiry || fires - b.expiry >= l.tick) {
          all_belong = false;
        }
      });
      if (!all_belong && b.expiry % l.tick == 0)
        return "a timer is in a bucket that is not its own";
    }
    if (queued != delays_.size()) return "the delay queue has buckets that are on no level";
    if (chunks_.count() != chunks) return "the number of chunks is not what was counted";
    return timers == size_ ? "" : "the number of timers is not what was counted";
  }

 private:
  struct level {
    std::int64_t tick;  ///< the length of a bucket
    divisor by_tick;
    std::int64_t interval;  ///< the reach of the level from now: all its buckets
    std::unique_ptr<wheel_bucket[]> buckets;
  };

  static wheel_shape checked(wheel_shape shape) {
    check_shape("timing wheel", shape);
    return shape;
  }

  /// The bucket's number in hooks: its level and its place there, below 2^24.
  static constexpr unsigned index_bits = 24;
  static std::uint32_t number_of(std::size_t on_level, std::size_t at) noexcept {
    return static_cast<std::uint32_t>(on_level << index_bits | at);
  }

  /// The tick at which a timer fires, at most the last tick.
  std::int64_t fires_at(std::int64_t when) const noexcept {
    const std::int64_t whole = by_tick_.quotient(when);
    const std::int64_t tick = whole + (whole * shape_.tick != when);
    return (tick < last_tick_ ? tick : last_tick_) * shape_.tick;
  }

  void add_level() {
    const std::int64_t tick = levels_.empty() ? shape_.tick : levels_.back().interval;
    std::int64_t interval = 0;
    if (__builtin_mul_overflow(tick, static_cast<std::int64_t>(shape_.size), &interval)) {
      interval = std::numeric_limits<std::int64_t>::max();  // reaches the end of time
    }
    // Room for every bucket, so that moving timers down a level needs no memory in the delay queue.
    delays_.reserve((levels_.size() + 1) * shape_.size);
    levels_.push_back(
        {tick, divisor(tick), interval, std::make_unique<wheel_bucket[]>(shape_.size)});
  }

  /// The wheels do not move until a bucket expires. If none has expired they can advance to `now`,
  /// so that a new timer is put no higher than necessary.
  void catch_up(std::int64_t now) noexcept {
    if (now - now_ < shape_.tick || !due_->empty()) return;
    if (delays_.empty() || now < delays_.first_expiry()) turn_to(now - now % shape_.tick);
  }
  /// To a multiple of the tick. No bucket that expires before it may be left.
  void turn_to(std::int64_t now) noexcept {
    now_ = now;
    due_ = &levels_[0].buckets[static_cast<std::size_t>(now / shape_.tick) % shape_.size];
  }

  /// Returns whether a level reaches `fires`, which is after now_. The level starts at the last
  /// multiple of its tick, as its buckets do; usually the result does not depend on where that is.
  bool reaches(const level& l, std::int64_t fires) const noexcept {
    const std::int64_t ahead = fires - now_;
    if (ahead >= l.interval) return false;
    return ahead < l.interval - l.tick || ahead + now_ % l.tick < l.interval;
  }

  /// Places a timer relative to now_: among the due timers, or into a bucket of the first level
  /// that reaches far enough. Returns false if there is no memory for it. Throws std::bad_alloc if
  /// there is none for a level.
  bool put(due t) {
    const std::int64_t fires = fires_at(t.when);
    if (fires <= now_) {
      return chunks_.put(
          *due_, number_of(0, static_cast<std::size_t>(due_ - levels_[0].buckets.get())), t);
    }
    std::size_t i = 0;
    for (;; ++i) {
      if (i == levels_.size()) add_level();
      if (reaches(levels_[i], fires)) break;
    }
    const level& l = levels_[i];
    const std::int64_t tick = l.by_tick.quotient(fires);
    const auto at = static_cast<std::size_t>(by_size_.remainder(tick));
    wheel_bucket& b = l.buckets[at];
    if (!chunks_.put(b, number_of(i, at), t)) return false;
    if (b.size == 1) delays_.offer(b, tick * l.tick);
    return true;
  }

  wheel_bucket& bucket_of(const hook& t) const noexcept {
    const std::uint32_t number = wheel_chunks::bucket_of(t);
    return levels_[number >> index_bits].buckets[number & ((1U << index_bits) - 1)];
  }

  void remove(const hook& t) noexcept {
    wheel_bucket& b = bucket_of(t);
    chunks_.remove(b, t);
    forget_if_empty(b);
  }
  /// No thread must wake for an empty bucket.
  void forget_if_empty(wheel_bucket& b) noexcept {
    if (b.empty() && delay_queue::has(b)) delays_.remove(b);
  }

  due pop(wheel_bucket& b) noexcept {
    const due t = chunks_.front(b);
    chunks_.pop_front(b);
    t.timer->bucket = 0;
    --size_;
    forget_if_empty(b);
    return t;
  }

  /// Places the timers of an expired bucket on lower levels. Returns false if there was no memory
  /// for all: the rest stay and are late, until the next tick.
  bool bring_down(wheel_bucket& b) noexcept {
    // Removed from the bucket before they are placed: some may be placed in this same bucket.
    wheel_bucket expired = wheel_chunks::detach(b);
    while (!expired.empty()) {
      if (!put(chunks_.front(expired))) {
        if (delay_queue::has(b)) delays_.remove(b);
        chunks_.attach(b, expired);
        delays_.offer(b, now_ + shape_.tick);
        return false;
      }
      chunks_.pop_front(expired);
    }
    return true;
  }
  /// Of a bucket that could not be moved down: its first timer; then the move is retried.
  due pop_late(wheel_bucket& b) noexcept {
    delays_.remove(b);
    delays_.offer(b, now_);
    return pop(b);
  }

  const wheel_shape shape_;
  const divisor by_tick_;
  const divisor by_size_;
  const std::int64_t last_tick_;  ///< the number of the last tick
  std::vector<level> levels_;
  delay_queue delays_;
  wheel_chunks chunks_;
  std::int64_t now_{0};  ///< the time up to which buckets have expired, a multiple of the tick
  /// The bucket of now_ on the lowest level: its timers are due.
  wheel_bucket* due_{nullptr};
  std::size_t size_{0};  ///< timers, including due ones
};

}  // namespace verge::detail
