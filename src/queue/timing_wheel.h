// timing_wheel: wheels of wheels, made on demand, with a delay queue in place of a tick.
//
//   level 1   [    ][ 40 ][    ] ...      one bucket is as long as all of level 0
//                    |
//                    v  when the bucket expires its timers go down a level
//   level 0   [ ][ ][ ][*][ ][ ] ...      one bucket is a tick; what expires here fires
//
//   delay queue: the buckets that have timers, by expiry. Its first one says when to wake.
//
// The design of Kafka's timer. Starting and stopping a timer is constant time, at any number of
// timers and for any delay: a timer that is n ticks away takes the wheel that reaches that far, and
// goes down at most log(n) levels on its way to firing. Nothing wakes for an empty tick. A bucket
// is offered to the delay queue once, when its first timer comes, and taken off it if the last one
// is stopped.
//
// A timer fires at the first tick that is not before its time: up to a tick late, never early.
// It knows no thread and no clock; the owner locks and says what time it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <queue/delay_queue.h>
#include <queue/wheel_shape.h>

namespace verge::detail {

class timing_wheel {
 public:
  using hook = list_hook;

  /// Throws std::invalid_argument for a tick or size that makes no wheel, and std::bad_alloc.
  explicit timing_wheel(wheel_shape shape) : shape_(shape) {
    check_shape("timing wheel", shape);
    add_level();
  }

  [[nodiscard]] static bool waits(const hook& t) noexcept { return t.list != nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return levels_.size() * shape_.size * sizeof(wheel_bucket) + delays_.bytes();
  }
  [[nodiscard]] std::size_t levels() const noexcept { return levels_.size(); }

  /// When the first bucket expires; 0 if there is none.
  [[nodiscard]] std::int64_t next() const noexcept {
    if (!due_.empty()) return now_ == 0 ? 1 : now_;
    return delays_.empty() ? 0 : delays_.first_expiry();
  }
  [[nodiscard]] std::int64_t next_exactly() const noexcept { return next(); }

  /// `now` must not be ahead of the time by which pop_due is called, or timers would be early.
  /// Throws std::bad_alloc and has changed nothing then.
  void insert(hook& t, std::int64_t when, std::int64_t /*period*/, std::int64_t now) {
    // The wheels stand still while there is nothing in them.
    if (size_ == 0 && now > now_) now_ = now - now % shape_.tick;
    t.when = when;
    place(t);
    ++size_;
  }

  void erase(hook& t) noexcept {
    timer_list* list = t.list;
    list->remove(t);
    --size_;
    if (list == &due_) return;
    auto& b = static_cast<wheel_bucket&>(*list);
    if (b.empty()) delays_.remove(b);  // nobody wakes for an empty bucket
  }

  hook* pop_due(std::int64_t now) noexcept {
    while (due_.empty()) {
      wheel_bucket* b = delays_.poll(now);
      if (b == nullptr) return nullptr;
      now_ = b->expiry;
      // Off the bucket before they are placed anew: some may come to stand in this very bucket.
      timer_list expired;
      while (hook* t = b->pop_front()) expired.push_back(*t);
      // Down, so that there is no level to be made, and the delay queue has room for all buckets.
      while (hook* t = expired.pop_front()) place(*t);
    }
    --size_;
    return due_.pop_front();
  }

  hook* pop_any() noexcept {
    while (due_.empty() && !delays_.empty()) {
      wheel_bucket* b = delays_.poll(INT64_MAX);
      while (hook* t = b->pop_front()) due_.push_back(*t);
    }
    hook* t = due_.pop_front();
    if (t != nullptr) --size_;
    return t;
  }

  [[nodiscard]] std::string verify() const {
    std::size_t n = 0;
    std::size_t queued = 0;
    if (!due_.verify(n)) return "the list of due timers is broken";
    if (!delays_.verify()) return "the delay queue is out of order";
    for (const level& l : levels_) {
      for (std::size_t i = 0; i < shape_.size; ++i) {
        const wheel_bucket& b = l.buckets[i];
        if (!b.verify(n)) return "a bucket's list is broken";
        if (b.empty() != (b.index == wheel_bucket::not_queued)) {
          return "a bucket with timers is not in the delay queue, or one without is";
        }
        queued += !b.empty();
        for (const hook* t = b.first(); t != nullptr; t = t->next) {
          const std::int64_t fires = fires_at(t->when);
          if (fires < b.expiry || fires - b.expiry >= l.tick) {
            return "a timer is in a bucket that is not its own";
          }
        }
      }
    }
    if (queued != delays_.size()) return "the delay queue has buckets that are on no level";
    return n == size_ ? "" : "the number of timers is not what was counted";
  }

 private:
  struct level {
    std::int64_t tick;      ///< how long a bucket is
    std::int64_t interval;  ///< how far the level reaches from now: all its buckets
    std::unique_ptr<wheel_bucket[]> buckets;
  };

  /// The tick at which a timer fires, or the last one there is.
  std::int64_t fires_at(std::int64_t when) const noexcept {
    const std::int64_t last = INT64_MAX / shape_.tick;
    const std::int64_t tick = tick_at_or_after(when, shape_.tick);
    return (tick < last ? tick : last) * shape_.tick;
  }

  void add_level() {
    const std::int64_t tick = levels_.empty() ? shape_.tick : levels_.back().interval;
    std::int64_t interval = 0;
    if (__builtin_mul_overflow(tick, static_cast<std::int64_t>(shape_.size), &interval)) {
      interval = INT64_MAX;  // reaches the end of time
    }
    // Room for every bucket there is: timers that go down a level need no memory.
    delays_.reserve((levels_.size() + 1) * shape_.size);
    levels_.push_back({tick, interval, std::make_unique<wheel_bucket[]>(shape_.size)});
  }

  /// Puts a timer where it belongs as of now_: among the due, or into a bucket of the first level
  /// that reaches far enough.
  void place(hook& t) {
    const std::int64_t fires = fires_at(t.when);
    if (fires <= now_) return due_.push_back(t);
    for (std::size_t i = 0;; ++i) {
      if (i == levels_.size()) add_level();
      const level& l = levels_[i];
      const std::int64_t start = now_ - now_ % l.tick;  // aligned, as its buckets are
      if (fires - start >= l.interval) continue;
      const std::int64_t number = fires / l.tick;
      wheel_bucket& b = l.buckets[static_cast<std::size_t>(number) % shape_.size];
      if (b.empty()) delays_.offer(b, number * l.tick);
      return b.push_back(t);
    }
  }

  const wheel_shape shape_;
  std::vector<level> levels_;
  delay_queue delays_;
  timer_list due_;
  std::int64_t now_{0};  ///< the time up to which buckets have expired, a multiple of the tick
  std::size_t size_{0};  ///< timers, the due ones among them
};

}  // namespace verge::detail
