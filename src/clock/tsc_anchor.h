// What the fast clock knows about the time stamp counter: each thread's anchor, and the rate.
//
// The arithmetic of the fast clock and its checks, without the reading of any clock: fast_clock.h
// says what it is all for and why the bound holds, tests drive it with counters and clocks of their
// own.
#pragma once

#include <atomic>
#include <cstdint>

namespace verge::detail {

/// The kernel's clock, read between two reads of the counter.
struct bracketed_time {
  std::uint64_t ticks;    // the counter before
  std::uint64_t bracket;  // by how much it was more after
  std::int64_t time;      // CLOCK_MONOTONIC
};

/// How far a reading may be ahead, in ns, and what that is made of; see fast_clock.h.
struct tsc_bounds {
  static constexpr std::int64_t ahead = 1000;
  static constexpr std::int64_t bias = 600;
  static constexpr std::int64_t bracket = 150;
  static constexpr std::int64_t window = 20'000;

  // Before the rate is known: what spoils a measurement by no more than 0.1 % at 1 GHz.
  static constexpr std::uint64_t bracket_ticks = 1000;
};

/// The counter's rate, measured while it is used.
///
/// Ground rules. Any thread may call any function at any time; nobody waits. `rate_` and `due_` are
/// read by anyone. The other fields belong to the thread that has set `busy_`; one that finds it
/// set leaves the work to the other.
///
/// It has its cache line to itself: it is written every millisecond, and whatever else were on the
/// line would be taken from every core as often.
class alignas(64) tsc_rate {
 public:
  /// A rate is a fraction of 2^shift nanoseconds per tick.
  static constexpr int shift = 32;

  /// 0: not known. Relaxed: a number that stands for itself, and the last but one is as good.
  std::uint64_t get() const noexcept { return rate_.load(std::memory_order_relaxed); }

  /// Measures, if it is time to.
  void sample(const bracketed_time& now) noexcept;

  /// Starts over: it was seen to be wrong.
  void drop() noexcept;

 private:
  static constexpr std::int64_t shortest = 1'000'000;     // measure over a millisecond at least
  static constexpr std::int64_t longest = 1'000'000'000;  // longer: there may have been a suspend

  void measure(std::uint64_t ticks, std::int64_t time) noexcept;

  std::atomic<std::uint64_t> rate_{0};
  std::atomic<std::int64_t> due_{0};  // when to measure next; relaxed: a hint
  std::atomic<bool> busy_{false};     // hands the fields below from one thread to the next
  std::uint64_t start_ticks_ = 0;
  std::int64_t start_time_ = 0;  // 0: not started
  std::uint64_t last_ = 0;       // the previous measurement
};
static_assert(alignof(tsc_rate) == 64 && sizeof(tsc_rate) == 64);

/// One thread's anchor. Touched by no other thread.
class tsc_anchor {
 public:
  /// Whether the anchor is good for a reading at `ticks`. Unsigned: a counter that went back is far
  /// ahead.
  bool covers(std::uint64_t ticks) const noexcept { return ticks - ticks_ < window_; }

  /// The time at `ticks`, which must be covered.
  std::int64_t reading(std::uint64_t ticks) const noexcept { return at_distance(ticks - ticks_); }

  /// A reading from the kernel's clock, and a new anchor if one can be had.
  std::int64_t renew(const bracketed_time& now, tsc_rate& rate) noexcept;

  /// A reading from the kernel's clock, and no anchor.
  std::int64_t release(std::int64_t time) noexcept;

  bool held() const noexcept { return window_ != 0; }

 private:
  // A window has less than 2^18 ticks and a rate less than 2^37: no overflow.
  std::int64_t at_distance(std::uint64_t since) const noexcept {
    const auto t = time_ + static_cast<std::int64_t>(since * rate_ >> tsc_rate::shift);
    return t < floor_ ? floor_ : t;
  }

  bool led_to(const bracketed_time& now) const noexcept;
  std::int64_t raise_floor(std::int64_t at_least, std::int64_t time) noexcept;

  std::uint64_t ticks_ = 0;   // the counter at the anchor
  std::uint64_t window_ = 0;  // for how many ticks it is good; 0: there is no anchor
  std::uint64_t rate_ = 0;
  std::int64_t time_ = 0;   // the reading at the anchor
  std::int64_t floor_ = 0;  // no reading is less: what was read before
};

}  // namespace verge::detail
