// The engines, and in what they differ: what tests that run on all of them need to know.
//
// An engine that comes later is one line in the table below.
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
  /// How far apart the moments are at which it fires; 0 if it fires to the nanosecond. At most 10
  /// ms.
  nanoseconds tick{0};
  /// The longest delay it takes; 0 if it takes any. At least 1 s.
  nanoseconds span{0};
  /// How often at most it looks at a timer of up to a day before it is due, to move it down.
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
