// SPDX-License-Identifier: Apache-2.0
// The engines, and their differences that matter to tests.
//
// A new engine needs one line in the table below.
#pragma once

#include <verge/runtime.h>

#include <chrono>
#include <ostream>

namespace verge::test {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

struct engine_traits {
  const char* name;
  verge::engine engine;
  /// The distance between the times at which it fires; 0 if it is exact to the nanosecond. At most
  /// 10 ms.
  nanoseconds tick{0};
  /// The longest delay it supports; 0 if it supports any. At least 1 s.
  nanoseconds span{0};
  /// How often it moves a timer of up to a day, at most, before it is due.
  unsigned levels{0};
};

inline std::ostream& operator<<(std::ostream& out, const engine_traits& e) { return out << e.name; }

inline constexpr engine_traits engines[] = {
    {.name = "global_heap", .engine = verge::engine::global_heap},
    {.name = "sharded_heap", .engine = verge::engine::sharded_heap},
    {.name = "processor_heap", .engine = verge::engine::processor_heap},
    {.name = "simple_wheel", .engine = verge::engine::simple_wheel, .tick = 1ms, .span = 65s},
    {.name = "timing_wheel", .engine = verge::engine::timing_wheel, .tick = 1ms, .levels = 7},
    {.name = "hybrid", .engine = verge::engine::hybrid},
};

}  // namespace verge::test
