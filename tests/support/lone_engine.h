// SPDX-License-Identifier: Apache-2.0
// One engine with two processors and nothing else, under a clock that the test moves; what fires is
// run at once. A thread sets the processor that it is on.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include <verge/detail/timer_functions.h>
#include "../../bench/bare_host.h"

namespace verge::test {

inline constexpr std::int64_t ms = 1'000'000;
inline constexpr std::int64_t second = 1000 * ms;

inline thread_local unsigned this_processor = 0;

class [[gnu::visibility("hidden")]] lone_engine : public bench::bare_host {
 public:
  explicit lone_engine(verge::engine which) : bare_host(which) { engine().grow(2); }

  template <class F>
  detail::timer_node& start(std::int64_t delay, F f, std::int64_t period = 0) {
    // A period is kept in the second half of the payload.
    EXPECT_TRUE(period == 0 || sizeof(f) <= detail::periodic_payload_bytes) << "f is too large";
    detail::timer_node& t = detail::make_func_timer(timers(), f);
    timers().start(t, timers().deadline(delay), period);
    return t;
  }

  std::int64_t now() noexcept override { return now_; }
  std::int64_t cheap_now() noexcept override { return now_; }
  unsigned home_processor() noexcept override { return this_processor; }
  void timer_fired(std::int64_t when, std::int64_t now) noexcept override {
    EXPECT_LE(when, now) << "early";
  }

 protected:
  ~lone_engine() { end(); }

  std::int64_t now_ = 3600 * second;
};

}  // namespace verge::test
