// The clock that timers run on, and one that a test sets by hand.
//
// Times are nanoseconds since some fixed moment, positive, and never go back. `clock` is the
// kernel's CLOCK_MONOTONIC, so its time points compare with std::chrono::steady_clock's count for
// count. `clock::time_point::max()` is "never".
//
// On a thread that takes part in a verge::simulation, `clock` is the simulated time, as it is for
// the timers that are started there: code that says `t.reset_at(verge::clock::now() + 5s)` is the
// same in both. std::chrono::steady_clock stays the kernel's, so what is to be simulated asks
// verge::clock.
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

/// The clock of the calling thread's timers, as std::chrono wants a clock to look: the kernel's
/// monotonic one, or that of the simulation which the thread takes part in.
struct clock {
  using rep = std::int64_t;
  using period = std::nano;
  using duration = std::chrono::duration<rep, period>;
  using time_point = std::chrono::time_point<clock>;
  static constexpr bool is_steady = true;

  static time_point now() noexcept;

  /// The time for "so long from now", in a few nanoseconds: it reads the processor's time stamp
  /// counter, which unlike now() does not keep cache misses around it from overlapping.
  ///
  /// It is never behind now(), and ahead by at most fast_ahead; the readings of one thread do not
  /// go back. So a deadline of fast_now() + d is never early, and late by at most fast_ahead. It
  /// must not decide whether a time has come: ask now() for that.
  ///
  ///   timers.reset(idle, verge::clock::fast_now() + 30s);    // a timer_queue with this clock
  ///   timers.run(verge::clock::now());
  ///
  /// Where the counter cannot be trusted (the kernel's clock source is not "tsc", or
  /// VERGE_CLOCK=kernel is in the environment) it is now(), and takes as long. So it is in a
  /// simulation. Not for signal handlers.
  static time_point fast_now() noexcept;
  static constexpr duration fast_ahead{1000};
};

/// A clock that stands still until it is told otherwise. It may be read and moved from any thread.
class manual_clock {
 public:
  /// Throws std::invalid_argument if `start` is not positive.
  explicit manual_clock(clock::time_point start = clock::time_point(std::chrono::seconds(1)));

  manual_clock(const manual_clock&) = delete;
  manual_clock& operator=(const manual_clock&) = delete;

  clock::time_point now() const noexcept;

  /// Moves to `t`. Throws std::invalid_argument if that is in this clock's past.
  void set(clock::time_point t);

  /// Moves forward by `d` and says where that is; the end of time is not passed. Throws
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
