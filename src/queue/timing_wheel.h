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

  /// Throws std::invalid_argument for a tick or size that makes no wheel, and std::bad_alloc.
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

  /// When the first bucket expires; 0 if there is none.
  [[nodiscard]] std::int64_t next() const noexcept {
    if (!due_->empty()) return now_ == 0 ? 1 : now_;
    return delays_.empty() ? 0 : delays_.first_expiry();
  }
  [[nodiscard]] std::int64_t next_exactly() const noexcept { return next(); }

  /// `now` must not be ahead of the time by which pop_due is called, or timers would be early.
  /// Throws std::bad_alloc and has changed nothing then.
  template <class Now>
  void insert(hook& t, std::int64_t when, std::int64_t period, Now&& now) {
    if (size_ == 0) catch_up(now());
    if (!put({.timer = &t, .when = when, .periodic = period != 0})) throw std::bad_alloc();
    ++size_;
  }

  /// The same for a timer that waits.
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

  /// A timer whose time has come; it is off the wheel then.
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

  /// Any timer at all, off the wheel.
  due pop_any() noexcept {
    if (size_ == 0) return {};
    return pop(due_->empty() ? delays_.first() : *due_);
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
    std::int64_t tick;  ///< how long a bucket is
    divisor by_tick;
    std::int64_t interval;  ///< how far the level reaches from now: all its buckets
    std::unique_ptr<wheel_bucket[]> buckets;
  };

  static wheel_shape checked(wheel_shape shape) {
    check_shape("timing wheel", shape);
    return shape;
  }

  /// As hooks know a bucket: its level, and its place there, for which 2^24 are enough.
  static constexpr unsigned index_bits = 24;
  static std::uint32_t number_of(std::size_t on_level, std::size_t at) noexcept {
    return static_cast<std::uint32_t>(on_level << index_bits | at);
  }

  /// The tick at which a timer fires, or the last one there is.
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
    // Room for every bucket there is: timers that go down a level need none in the delay queue.
    delays_.reserve((levels_.size() + 1) * shape_.size);
    levels_.push_back(
        {tick, divisor(tick), interval, std::make_unique<wheel_bucket[]>(shape_.size)});
  }

  /// The wheels stand still until a bucket expires. If none has they can go on to `now`, and what
  /// comes goes no higher than it must.
  void catch_up(std::int64_t now) noexcept {
    if (now - now_ < shape_.tick || !due_->empty()) return;
    if (delays_.empty() || now < delays_.first_expiry()) turn_to(now - now % shape_.tick);
  }
  /// To a multiple of the tick. Nothing may be left of what expires before it.
  void turn_to(std::int64_t now) noexcept {
    now_ = now;
    due_ = &levels_[0].buckets[static_cast<std::size_t>(now / shape_.tick) % shape_.size];
  }

  /// Whether a level reaches as far as `fires`, which is after now_. It starts at the last multiple
  /// of its tick, as its buckets do; mostly the answer is the same wherever that is.
  bool reaches(const level& l, std::int64_t fires) const noexcept {
    const std::int64_t ahead = fires - now_;
    if (ahead >= l.interval) return false;
    return ahead < l.interval - l.tick || ahead + now_ % l.tick < l.interval;
  }

  /// Puts a timer where it belongs as of now_: among the due, or into a bucket of the first level
  /// that reaches far enough. False if there is no memory for it. Throws std::bad_alloc if there is
  /// none for a level.
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
  /// Nobody wakes for an empty bucket.
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

  /// Places the timers of a bucket that has expired anew, each on a lower level. False if there was
  /// no memory for all: the rest stay, and are late; the next tick sees to them.
  bool bring_down(wheel_bucket& b) noexcept {
    // Off the bucket before they are placed: some may come to stand in this very bucket.
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
  /// Of a bucket that could not be brought down: its first timer, and then it is tried again.
  due pop_late(wheel_bucket& b) noexcept {
    delays_.remove(b);
    delays_.offer(b, now_);
    return pop(b);
  }

  const wheel_shape shape_;
  const divisor by_tick_;
  const divisor by_size_;
  const std::int64_t last_tick_;  ///< the number of the last tick there is
  std::vector<level> levels_;
  delay_queue delays_;
  wheel_chunks chunks_;
  std::int64_t now_{0};  ///< the time up to which buckets have expired, a multiple of the tick
  /// The bucket of now_ on the lowest level: what is in it is due.
  wheel_bucket* due_{nullptr};
  std::size_t size_{0};  ///< timers, the due ones among them
};

}  // namespace verge::detail
