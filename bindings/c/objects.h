// SPDX-License-Identifier: Apache-2.0
// What the opaque types of verge_c.h are.
#pragma once

#include <verge/clock.h>
#include <verge/loop.h>
#include <verge/runtime.h>
#include <verge/simulation.h>
#include <verge/time.h>

#include <chrono>
#include <cstdint>
#include <utility>

#include "boundary.h"
#include "verge_c.h"

struct verge_runtime {
  explicit verge_runtime(verge::runtime_options o) : it(std::move(o)) {}
  verge::runtime it;
};

struct verge_simulation {
  explicit verge_simulation(verge::simulation_options o) : it(std::move(o)) {}
  verge::simulation it;
};

/// One of the two handles is empty. The options are those of every reset.
struct verge_timer {
  verge::timer once;
  verge::ticker periodic;
  verge::timer_options options;
};

struct verge_queue {
  verge::basic_loop_timers<verge::c::call> it;
};

namespace verge::c {

inline clock::time_point time_of(std::int64_t ns) noexcept {
  return clock::time_point(clock::duration(ns));
}

}  // namespace verge::c
