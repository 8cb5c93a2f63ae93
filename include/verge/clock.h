// SPDX-License-Identifier: Apache-2.0
// The clock of all timers, and a manual clock for tests.
//
// Times are nanoseconds since a fixed moment; they are positive and never go back. `clock` is the
// kernel's CLOCK_MONOTONIC, so its counts equal those of std::chrono::steady_clock.
// `clock::time_point::max()` means "never".
//
// On a thread that takes part in a verge::simulation, `clock` is the simulated time, like that of
// the timers started there: `t.reset_at(verge::clock::now() + 5s)` works the same in both.
// std::chrono::steady_clock remains real time, so code to be simulated must read verge::clock.
//
//   verge::manual_clock c;
//   c.advance(std::chrono::hours(1));       // no waiting
#pragma once

#include <verge/duration.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#pragma GCC visibility push(default)

namespace verge {

/// The clock of the calling thread's timers, as a std::chrono clock: the kernel's monotonic clock,
/// or that of the simulation in which the thread takes part.
struct clock {
  using rep = std::int64_t;                             ///< a signed 64-bit count
  using period = std::nano;                             ///< of nanoseconds
  using duration = std::chrono::duration<rep, period>;  ///< 292 years at most
  using time_point = std::chrono::time_point<clock>;    ///< a time on this clock
  static constexpr bool is_steady = true;               ///< it is never set

  /// The time, exact. Timers are due by this.
  static time_point now() noexcept;

  /// A fast reading for computing deadlines. It takes a few nanoseconds: it reads the processor's
  /// time stamp counter, which unlike now() does not keep surrounding cache misses from
  /// overlapping.
  ///
  /// It is never behind now() and at most fast_ahead ahead of it; the readings of one thread do not
  /// go back. So a deadline of fast_now() + d is never early, and late by at most fast_ahead. Do
  /// not use it to decide whether a time has come: use now().
  ///
  ///   timers.reset(idle, verge::clock::fast_now() + 30s);    // a timer_queue with this clock
  ///   timers.run(verge::clock::now());
  ///
  /// Where the counter is not reliable (the kernel's clock source is not "tsc", or
  /// VERGE_CLOCK=kernel is in the environment) and in a simulation, it equals now() and takes as
  /// long. Not for signal handlers.
  static time_point fast_now() noexcept;
  /// How far fast_now() may be ahead of now(): a microsecond.
  static constexpr duration fast_ahead{1000};
};

/// A clock that moves only when told to. It may be read and moved from any thread.
class manual_clock {
 public:
  /// Throws std::invalid_argument if `start` is not positive.
  explicit manual_clock(clock::time_point start = clock::time_point(std::chrono::seconds(1)));

  manual_clock(const manual_clock&) = delete;
  manual_clock& operator=(const manual_clock&) = delete;

  /// The time that it was moved to.
  clock::time_point now() const noexcept;

  /// Moves to `t`. Throws std::invalid_argument if `t` is before now().
  void set(clock::time_point t);

  /// Moves forward by `d`, at most to time_point::max(), and returns the new time. Throws
  /// std::invalid_argument if `d` is negative.
  template <class Rep, class Period>
  clock::time_point advance(std::chrono::duration<Rep, Period> d) {
    return advance_by(saturate(d));
  }

 private:
  clock::time_point advance_by(clock::duration d);

  std::atomic<clock::rep> now_;
};

}  // namespace verge

#pragma GCC visibility pop
