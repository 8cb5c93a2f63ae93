// SPDX-License-Identifier: Apache-2.0
// drain: what a scheduler does after all threads have finished: it goes from one time with
// something due to the next, until nothing is left.
#pragma once

#include <cstdint>
#include <string>

#include <explorer/explorer.h>

namespace verge::test {

/// `run(place, at)` runs what is due in one of the places, `next(place)` returns when more is due
/// there, 0 if never. There must be no wake-up for what has been done.
template <class Places, class Run, class Next>
void drain(explorer& e, Places& places, std::int64_t at, Run run, Next next) {
  for (;;) {
    for (auto& place : places) run(place, at);
    std::int64_t earliest = 0;
    for (auto& place : places) {
      const std::int64_t when = next(place);
      if (when != 0 && (earliest == 0 || when < earliest)) earliest = when;
    }
    if (earliest == 0) return;
    if (earliest <= at) {
      e.fail("busy loop", "everything due at " + std::to_string(at) +
                              " has run, and more is due at " + std::to_string(earliest));
    }
    at = earliest;
  }
}

}  // namespace verge::test
