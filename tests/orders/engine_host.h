// SPDX-License-Identifier: Apache-2.0
// engine_host: the default engine with two processors, at a time that stands still, for scenes. A
// scene's thread is the worker of a processor when it says so.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include <orders/scene.h>

#include "../../bench/bare_host.h"

namespace verge::orders {

inline constexpr std::int64_t second = 1'000'000'000;
inline constexpr std::int64_t start_of_time = 3600 * second;

inline constinit thread_local unsigned this_processor = 0;

class [[gnu::visibility("hidden")]] engine_host final : public bench::bare_host {
 public:
  engine_host() : bare_host(verge::engine::hybrid) {
    this_processor = 0;
    engine().grow(2);
  }
  engine_host(const engine_host&) = delete;
  engine_host& operator=(const engine_host&) = delete;
  ~engine_host() { end(); }
  std::int64_t now() noexcept override { return start_of_time; }
  std::int64_t cheap_now() noexcept override { return start_of_time; }
  unsigned home_processor() noexcept override { return this_processor; }
  void timer_fired(std::int64_t when, std::int64_t now) noexcept override {
    require(when <= now, "no timer fires early");
  }

  /// A thread goes to sleep until the first timer of all: it says so, then looks.
  void sleep() noexcept {
    until_.store(INT64_MAX, std::memory_order_seq_cst);
    std::int64_t first = INT64_MAX;
    for (const unsigned p : {0U, 1U}) {
      if (const std::int64_t next = engine().next_when(p); next != 0) first = std::min(first, next);
    }
    until_.store(first, std::memory_order_seq_cst);
  }
  bool sleeps_past(std::int64_t when) const noexcept override {
    return until_.load(std::memory_order_seq_cst) > when;
  }
  void wake_net_poller(std::int64_t when) noexcept override {
    if (sleeps_past(when)) woken_.store(true, std::memory_order_relaxed);
  }
  /// Whether it wakes by then, or was woken. After all threads have ended.
  bool wakes_by(std::int64_t when) const noexcept {
    return woken_.load(std::memory_order_relaxed) || until_.load(std::memory_order_relaxed) <= when;
  }

 private:
  std::atomic<std::int64_t> until_{0};
  std::atomic<bool> woken_{false};
};

}  // namespace verge::orders
