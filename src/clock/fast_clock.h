// SPDX-License-Identifier: Apache-2.0
// The fast clock: used to compute "now + d" when a timer is started.
//
// Promise. Where T is CLOCK_MONOTONIC at the moment of the call, now() is at least T and at most T
// + 1 us, and the readings of one thread do not go back. So a deadline computed from it is never
// early, and late by a negligible amount. It must not be used to decide whether a timer is due: use
// the true clock (true_clock.h).
//
// Why. The kernel's clock read is fenced: it takes 24 ns, and it keeps the cache misses around it
// from overlapping, which costs a multiple of that among a million timers. A plain rdtsc is not
// fenced.
//
// How. Each thread has an anchor: a value of the time stamp counter, the time that belongs to it,
// and the rate. A reading is the anchor's time plus the ticks since then times the rate. After a
// window of 20 us the anchor is discarded and a new one is taken from CLOCK_MONOTONIC, so the two
// never drift apart, and threads share only the rate. The kernel's clock is a function of the same
// counter (the fast clock is only used if the kernel's clock source is "tsc"): what happens to the
// counter, such as a virtual machine being paused or migrated, happens to both.
//
// The error, in ns. All readings are moved ahead by `bias` = 600; the other errors may have either
// sign (tsc_anchor.h has the figures):
//
//   the anchor   ahead by 0 .. 150. The kernel's clock is read between two reads of the counter,
//                and its time is given to the first: so the anchor can only be ahead, by less than
//                the two are apart. If that is more than 150 (an interrupt, a preemption, a trapped
//                rdtsc, a system call in place of the vDSO), the reading is used once and is not
//                made an anchor. Usually it is 40.
//   the rate     +-250 in a window, if it is within 1.25 %. It is measured again every ms or so, to
//                better than 0.1 %. NTP steers by at most 0.05 %, 10 ns in a window. ADJ_TICK
//                can steer by up to 10 %, but a change of more than 1.25 % in one step shows when
//                the next anchor is taken: then the rate is dropped, and until it is known again
//                every reading is one of CLOCK_MONOTONIC. So only such a step can break the bound,
//                and for one window.
//   early        behind. Nothing holds an unfenced rdtsc back while older loads are waiting for
//   execution    memory; the reorder buffer bounds that to a few cache misses, 150 each.
//
// Sum: never ahead by more than 600 + 150 + 250 = 1000, and not behind as long as rdtsc is early by
// no more than 600 - 250 = 350 (590 with NTP's steering alone).
//
// Other events. The counter goes back (suspend to memory) or jumps: the unsigned distance from the
// anchor is beyond the window, and a new anchor is taken. The thread moves to another core: the
// kernel uses the counter only if it is the same on all cores. The kernel stops using it at run
// time: its clock is then read by system call, no bracket is short enough, and no anchor is taken.
//
// Fall-back. Without an invariant counter, or with any other clock source, now() is CLOCK_MONOTONIC
// itself. The environment variable VERGE_CLOCK=kernel, or use(source::kernel), has the same effect.
//
// Not for signal handlers, which may see an anchor that is half written. Call it from plain
// functions, not from the body of a coroutine: a compiler may keep the address of a thread-local
// variable across a suspension.
#pragma once

#include <clock/true_clock.h>
#include <clock/tsc_anchor.h>

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace verge::detail {

class fast_clock {
 public:
  enum class source : std::uint8_t { tsc, kernel };

  static constexpr std::int64_t max_ahead = tsc_bounds::ahead;

  static std::int64_t now() noexcept;
  /// The same, or 0 if that needs the slow path.
  static std::int64_t now_or_zero() noexcept;

  /// The source in use, determined on first use.
  static source source_in_use() noexcept;

  /// For tests. Other threads follow within one window. source::tsc checks the machine again;
  /// returns false if the counter is not reliable.
  static bool use(source wanted) noexcept;

  /// Returns whether this thread has an anchor, so that the next reading may be fast.
  static bool anchored() noexcept;

 private:
  static std::int64_t now_and_anchor() noexcept;

#if defined(__x86_64__)
  // initial-exec: a plain fs-relative access, from the shared library as well. It uses a few bytes
  // of the loader's reserve of static TLS.
  [[gnu::tls_model("initial-exec")]] static thread_local constinit tsc_anchor anchor_;
#endif
};

inline std::int64_t fast_clock::now_or_zero() noexcept {
#if defined(__x86_64__)
  const tsc_anchor& a = anchor_;
  const std::uint64_t ticks = __rdtsc();
  if (a.covers(ticks)) [[likely]]
    return a.reading(ticks);
#endif
  return 0;
}

inline std::int64_t fast_clock::now() noexcept {
#if defined(__x86_64__)
  const std::int64_t t = now_or_zero();
  return t != 0 ? t : now_and_anchor();
#else
  return true_now();
#endif
}

}  // namespace verge::detail
