// SPDX-License-Identifier: Apache-2.0

#include <clock/tsc_anchor.h>

#include <algorithm>

namespace verge::detail {

void tsc_rate::sample(const bracketed_time& now) noexcept {
  if (now.time < due_.load(std::memory_order_relaxed)) return;
  if (busy_.exchange(true, std::memory_order_acquire)) return;
  if (now.time >= due_.load(std::memory_order_relaxed)) {  // no other thread was faster
    if (start_time_ != 0 && now.time - start_time_ <= longest && now.ticks > start_ticks_) {
      measure(now.ticks - start_ticks_, now.time - start_time_);
    }
    start_ticks_ = now.ticks;
    start_time_ = now.time;
    due_.store(now.time + shortest, std::memory_order_relaxed);
  }
  busy_.store(false, std::memory_order_release);
}

// A rate is valid when two consecutive measurements agree within 1 %, which excludes one during a
// suspend. A counter slower than 32 MHz is rejected: it would be too coarse and could overflow.
void tsc_rate::measure(std::uint64_t ticks, std::int64_t time) noexcept {
  const auto elapsed = static_cast<std::uint64_t>(time);
  const std::uint64_t measured = ticks < elapsed / 32 ? 0 : (elapsed << shift) / ticks;
  const std::uint64_t change = measured > last_ ? measured - last_ : last_ - measured;
  rate_.store(change <= measured / 100 ? measured : 0, std::memory_order_relaxed);
  last_ = measured;
}

void tsc_rate::drop() noexcept {
  if (busy_.exchange(true, std::memory_order_acquire)) return;
  rate_.store(0, std::memory_order_relaxed);
  due_.store(0, std::memory_order_relaxed);
  start_time_ = 0;
  last_ = 0;
  busy_.store(false, std::memory_order_release);
}

std::int64_t tsc_anchor::renew(const bracketed_time& now, tsc_rate& rate) noexcept {
  const bool credible = now.bracket <= tsc_bounds::bracket_ticks;
  const bool wrong = credible && held() && !led_to(now);
  const std::int64_t reading = raise_floor(now.time + tsc_bounds::bias, now.time);
  window_ = 0;
  if (!credible) return reading;
  if (wrong) {
    rate.drop();
    return reading;
  }

  rate.sample(now);
  rate_ = rate.get();
  const auto ahead = static_cast<std::int64_t>(now.bracket * rate_ >> tsc_rate::shift);
  if (rate_ == 0 || ahead > tsc_bounds::bracket) return reading;
  ticks_ = now.ticks;
  time_ = now.time + tsc_bounds::bias;
  window_ = (std::uint64_t{tsc_bounds::window} << tsc_rate::shift) / rate_;
  return reading;
}

std::int64_t tsc_anchor::release(std::int64_t time) noexcept {
  const std::int64_t reading = raise_floor(time, time);
  window_ = 0;
  return reading;
}

// Returns whether the anchor predicts `now` within its bounds. Checked only nearby: over a longer
// time steering adds up, and the rate may legitimately change.
bool tsc_anchor::led_to(const bracketed_time& now) const noexcept {
  const std::uint64_t since = now.ticks - ticks_;
  if (since >= 8 * window_) return true;
  const auto elapsed = static_cast<std::int64_t>(since * rate_ >> tsc_rate::shift);
  const std::int64_t off = time_ + elapsed - (now.time + tsc_bounds::bias);
  return std::max(off, -off) <= tsc_bounds::bracket + elapsed / 200;
}

// The next reading: at least `at_least`, and not less than any reading from the anchor, unless that
// breaks the bound, which has priority (the counter went back).
std::int64_t tsc_anchor::raise_floor(std::int64_t at_least, std::int64_t time) noexcept {
  const std::int64_t highest = held() ? at_distance(window_) : floor_;
  floor_ = std::max(at_least, std::min(highest, time + tsc_bounds::ahead));
  return floor_;
}

}  // namespace verge::detail
