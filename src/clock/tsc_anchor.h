// SPDX-License-Identifier: Apache-2.0
// The fast clock's model of the time stamp counter: each thread's anchor, and the rate.
//
// The arithmetic of the fast clock and its checks, without reading any clock: fast_clock.h has the
// purpose and the proof of the bound; tests drive it with simulated counters and clocks.
#pragma once

#include <atomic>
#include <cstdint>

namespace verge::detail {

/// The kernel's clock, read between two reads of the counter.
struct bracketed_time {
  std::uint64_t ticks;    // the counter before
  std::uint64_t bracket;  // the increase from before to after
  std::int64_t time;      // CLOCK_MONOTONIC
};

/// How far a reading may be ahead, in ns, and its parts; see fast_clock.h.
struct tsc_bounds {
  static constexpr std::int64_t ahead = 1000;
  static constexpr std::int64_t bias = 600;
  static constexpr std::int64_t bracket = 150;
  static constexpr std::int64_t window = 20'000;

  // Before the rate is known: distorts a measurement by at most 0.1 % at 1 GHz.
  static constexpr std::uint64_t bracket_ticks = 1000;
};

/// The counter's rate, measured while it is used.
///
/// Ground rules. Any thread may call any function at any time; no thread waits. Any thread reads
/// `rate_` and `due_`. The other fields belong to the thread that has set `busy_`; a thread that
/// finds it set leaves the work to that thread.
///
/// It has a separate cache line: it is written every millisecond, which invalidates the line in
/// every other core.
class alignas(64) tsc_rate {
 public:
  /// A rate is a fraction of 2^shift nanoseconds per tick.
  static constexpr int shift = 32;

  /// 0: unknown. Relaxed: it publishes nothing else, and an old value is as good.
  std::uint64_t get() const noexcept { return rate_.load(std::memory_order_relaxed); }

  /// Measures if a measurement is due.
  void sample(const bracketed_time& now) noexcept;

  /// Discards the rate, which was found to be wrong.
  void drop() noexcept;

 private:
  static constexpr std::int64_t shortest = 1'000'000;     // measure over a millisecond at least
  static constexpr std::int64_t longest = 1'000'000'000;  // longer: maybe a suspend

  void measure(std::uint64_t ticks, std::int64_t time) noexcept;

  std::atomic<std::uint64_t> rate_{0};
  std::atomic<std::int64_t> due_{0};  // when to measure next; relaxed: a hint
  std::atomic<bool> busy_{false};     // acquire/release: orders access to the fields below
  std::uint64_t start_ticks_ = 0;
  std::int64_t start_time_ = 0;  // 0: not started
  std::uint64_t last_ = 0;       // the previous measurement
};
static_assert(alignof(tsc_rate) == 64);
static_assert(sizeof(tsc_rate) == 64);

/// One thread's anchor. No other thread accesses it.
class tsc_anchor {
 public:
  /// Returns whether the anchor covers a reading at `ticks`. Unsigned: a counter that went back
  /// appears far ahead.
  bool covers(std::uint64_t ticks) const noexcept { return ticks - ticks_ < window_; }

  /// The time at `ticks`, which must be covered.
  std::int64_t reading(std::uint64_t ticks) const noexcept { return at_distance(ticks - ticks_); }

  /// A reading from the kernel's clock, and a new anchor if possible.
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
  std::uint64_t window_ = 0;  // its length in ticks; 0: no anchor
  std::uint64_t rate_ = 0;
  std::int64_t time_ = 0;   // the reading at the anchor
  std::int64_t floor_ = 0;  // a lower bound of all readings to come
};

}  // namespace verge::detail
