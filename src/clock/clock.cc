// SPDX-License-Identifier: Apache-2.0

#include <clock/arithmetic.h>
#include <clock/fast_clock.h>
#include <clock/simulated_time.h>
#include <clock/true_clock.h>
#include <verge/clock.h>

#include <ctime>
#include <stdexcept>
#include <string>

namespace verge {

thread_local constinit const std::atomic<std::int64_t>* detail::simulated_time{nullptr};

std::int64_t detail::true_now() noexcept {
  // It cannot fail for this clock. The kernel counts from boot, so 292 years fit; but a time
  // namespace may shift the start, and times must be positive.
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return as_time(std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec);
}

clock::time_point clock::now() noexcept {
  // Acquire: a thread that sees the new time sees what was done before it was set.
  if (const auto* t = detail::simulated_time) [[unlikely]]
    return time_point(duration(t->load(std::memory_order_acquire)));
  return time_point(duration(detail::true_now()));
}

clock::time_point clock::fast_now() noexcept {
  static_assert(fast_ahead.count() == detail::fast_clock::max_ahead);
  if (detail::simulated_time != nullptr) [[unlikely]]
    return now();
  return time_point(duration(detail::fast_clock::now()));
}

manual_clock::manual_clock(clock::time_point start) : now_(start.time_since_epoch().count()) {
  if (start.time_since_epoch().count() < detail::first_time) {
    throw std::invalid_argument("verge::manual_clock: a start of " +
                                std::to_string(start.time_since_epoch().count()) +
                                " ns; times are positive, start at 1 ns or later");
  }
}

// Acquire and release, here and below: a thread that sees the new time sees what was done before it
// was set.
clock::time_point manual_clock::now() const noexcept {
  return clock::time_point(clock::duration(now_.load(std::memory_order_acquire)));
}

void manual_clock::set(clock::time_point t) {
  const auto wanted = t.time_since_epoch().count();
  auto seen = now_.load(std::memory_order_relaxed);
  do {
    if (wanted < seen) {
      throw std::invalid_argument("verge::manual_clock::set: " + std::to_string(wanted) +
                                  " ns is in the past, the clock is at " + std::to_string(seen) +
                                  " ns and does not go back; use a new clock for a new start");
    }
  } while (!now_.compare_exchange_weak(seen, wanted, std::memory_order_acq_rel,
                                       std::memory_order_relaxed));
}

clock::time_point manual_clock::advance_by(clock::duration d) {
  if (d.count() < 0) {
    throw std::invalid_argument("verge::manual_clock::advance: " + std::to_string(d.count()) +
                                " ns is negative, the clock does not go back; use a new clock for "
                                "a new start");
  }
  auto seen = now_.load(std::memory_order_relaxed);
  clock::rep moved = 0;
  do {
    moved = detail::saturating_add(seen, d.count());
  } while (!now_.compare_exchange_weak(seen, moved, std::memory_order_acq_rel,
                                       std::memory_order_relaxed));
  return clock::time_point(clock::duration(moved));
}

}  // namespace verge
