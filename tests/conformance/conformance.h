// SPDX-License-Identifier: Apache-2.0
// The conformance suite: the behaviour of timers on every engine.
//
// Each test is a line of the list of behaviours that Go's own tests require of timers, and carries
// the line's number. All of them run on every engine (support/engines.h). Engines may differ in two
// ways, and the tests take both as parameters: a wheel fires on its ticks (never early, late by up
// to one tick), and a wheel of one level rejects delays beyond its span.
//
// Unless real time is the subject, the tests use simulated time, where everything is exact. In real
// time they are strict about early and lenient about late: a busy machine fails no test.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <verge/runtime.h>
#include <verge/select.h>
#include <verge/simulation.h>
#include <verge/task.h>
#include <verge/time.h>
#include <verge/timeout.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <stdexcept>

#include <support/as_default.h>
#include <support/engines.h>
#include <support/patience.h>
#include <support/scale.h>

namespace verge::test {

class conformance : public testing::TestWithParam<engine_traits> {
 protected:
  static nanoseconds tick() { return GetParam().tick; }

  static simulation_options simulated(std::uint64_t seed = 1) {
    return {.seed = seed, .engine = GetParam().engine};
  }
  static runtime_options live(unsigned processors = 2) {
    return {.processors = processors, .engine = GetParam().engine};
  }

  /// A delay of d, or the longest that the engine supports.
  static nanoseconds up_to(nanoseconds d) {
    return GetParam().span == 0ns ? d : std::min(d, GetParam().span);
  }
  /// `n` times a length of which eight are within the engine's span: a minute, if possible.
  static nanoseconds minutes(int n) { return n * up_to(8min) / 8; }
  static bool takes_any_delay() { return GetParam().span == 0ns; }
  /// Checks that a call with a delay or a period beyond the engine's span throws.
  static auto is_refused() {
    return testing::ThrowsMessage<std::invalid_argument>(testing::HasSubstr("beyond the span"));
  }

  /// In simulated time: checks that something due at `due` happened at `at`. A wheel has until its
  /// next tick; `steps` is the number of consecutive waits.
  static testing::AssertionResult on_time(time_point due, time_point at, int steps = 1) {
    if (at < due) return testing::AssertionFailure() << "early by " << (due - at).count() << " ns";
    if (at > due + steps * tick()) {
      return testing::AssertionFailure() << "late by " << (at - due).count() << " ns";
    }
    return testing::AssertionSuccess();
  }
};

}  // namespace verge::test
