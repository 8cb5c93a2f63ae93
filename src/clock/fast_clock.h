// The fast clock: what "now + d" is computed from when a timer is started.
//
// Promise. Where T is CLOCK_MONOTONIC at the moment of the call, now() is at least T and at most T
// + 1 us, and the readings of one thread do not go back. So a deadline made from it is never too
// soon, and too late by nothing that a timer could show. It must not decide whether a timer is due:
// that is the true clock's (true_clock.h).
//
// Why. The kernel's clock read is fenced: it takes 25 ns, and it keeps the cache misses around it
// from overlapping, which costs a multiple of that among a million timers. A plain rdtsc is not
// fenced.
//
// How. Each thread has an anchor: a time stamp counter value, the time that belongs to it, and the
// rate. A reading is the anchor's time plus the ticks since then times the rate. After `window` ns
// the anchor is thrown away and a new one is taken from CLOCK_MONOTONIC, so the two never drift
// apart and there is nothing to keep right across threads but the rate. The kernel's own clock is a
// function of the same counter (the fast clock is only used where the kernel's clock source is
// "tsc"), hence whatever happens to the counter - a virtual machine paused or moved - happens to
// both.
//
// The error, in nanoseconds. All readings are moved ahead by `bias` = 600; what is left may push
// either way:
//
//   the anchor       ahead by 0 .. 150. The kernel's clock is read between two reads of the
//   counter, and its time is given to
//                    the first: the anchor can only be ahead, by less than the two are apart. If
//                    that is more than `max_bracket` = 150 (an interrupt, a preemption, a trapped
//                    rdtsc, a system call in place of the vDSO), the reading is used once and is
//                    not made an anchor. Usually 40.
//   the rate         +- 250 within a window of 10 us, if it is within 2.5 %. It is measured anew
//   every few ms, over 1 ms or
//                    more with brackets at both ends, to better than 0.1 %. NTP steers by at most
//                    0.05 % (500 ppm; 5 ns in a window) between two measurements. ADJ_TICK can
//                    steer by up to 10 %, but a change of more than 2.5 % in one step shows when
//                    the next anchor is taken: then the rate is dropped, and until it is known
//                    again every reading is one of CLOCK_MONOTONIC.
//   early execution  behind. Nothing holds an unfenced rdtsc back while older loads are waiting for
//   memory; the reorder
//                    buffer bounds it to a few cache misses, 150 each.
//
// Sum: never ahead by more than 600 + 150 + 250 = 1000, and not behind as long as rdtsc is early by
// no more than 600 - 250 = 350 (with NTP's steering alone: 595).
//
// Other events. The counter goes back (suspend to memory) or jumps: the distance from the anchor,
// unsigned, is past the window, and a new anchor is taken. The thread moves to another core: the
// kernel trusts the counter only if it is the same on all. The kernel stops trusting it while we
// run: its clock is then read by system call or from a slow device, no bracket is short enough, and
// there are no anchors any more.
//
// Fall-back. Without an invariant TSC, or with any other clock source, now() is CLOCK_MONOTONIC
// itself. The environment variable VERGE_CLOCK=kernel, or use(source::kernel), makes it so
// anywhere.
//
// Not for signal handlers: one that interrupts the taking of an anchor may see half of it.
#pragma once

#include <clock/arithmetic.h>
#include <clock/true_clock.h>

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace verge::detail {

class fast_clock {
 public:
  enum class source : std::uint8_t { tsc, kernel };

  static constexpr std::int64_t max_ahead = 1000;

  static std::int64_t now() noexcept;

  /// What is read: found out on first use.
  static source source_in_use() noexcept;

  /// For tests. Other threads follow within one window. source::tsc asks the machine again, and is
  /// refused with `false` where the counter cannot be trusted.
  static bool use(source wanted) noexcept;

  /// Whether this thread's last reading left an anchor behind, that is, whether the next may be
  /// fast.
  static bool anchored() noexcept;

 private:
  static constexpr std::int64_t bias = 600;
  static constexpr std::int64_t max_bracket = 150;
  static constexpr std::int64_t window = 10'000;
  static constexpr int rate_shift = 32;

  // One per thread, and touched by no other.
  struct anchor {
    std::uint64_t ticks = 0;   // the counter at the anchor
    std::uint64_t window = 0;  // how many ticks the anchor is good for; 0: there is none
    std::uint64_t rate = 0;    // nanoseconds per tick, times 2^rate_shift
    std::int64_t time = 0;     // the reading at the anchor
    std::int64_t floor = 0;    // no reading is below: what the previous anchor may have led to

    // ticks < 2^32 within a window, and rate < 2^40: no overflow.
    std::int64_t reading(std::uint64_t since) const noexcept {
      const auto t = time + static_cast<std::int64_t>(since * rate >> rate_shift);
      return t < floor ? floor : t;
    }
  };

  struct rate_meter;

  static std::int64_t now_and_anchor() noexcept;

#if defined(__x86_64__)
  // initial-exec: a plain fs-relative access from the shared library, too; a few bytes of the
  // static TLS reserve are enough.
  [[gnu::tls_model("initial-exec")]] static thread_local constinit anchor anchor_;
#endif
};

inline std::int64_t fast_clock::now() noexcept {
#if defined(__x86_64__)
  const anchor& a = anchor_;
  const std::uint64_t since = __rdtsc() - a.ticks;
  if (since < a.window) [[likely]]
    return a.reading(since);
  return now_and_anchor();
#else
  return true_now();
#endif
}

}  // namespace verge::detail
