// SPDX-License-Identifier: Apache-2.0
// engine_host: the default engine with two processors, at a time that stands still, for scenes. A
// scene's thread is the worker of a processor when it says so.
#pragma once

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
};

}  // namespace verge::orders
