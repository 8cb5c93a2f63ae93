// SPDX-License-Identifier: Apache-2.0
// tracing: whether an access is one of a scene's.
#pragma once

#include <explorer/explorer.h>

namespace verge::orders {

struct tracing {
  /// The model runs: what it does itself does not count.
  inline static bool busy = false;
  /// A schedule runs.
  inline static bool on = false;

  static bool now() { return on && !busy; }
};

/// f() in the model, if the access counts; else returns false.
template <class F>
bool traced(F&& f) {
  if (!tracing::now()) return false;
  tracing::busy = true;
  f();
  tracing::busy = false;
  return true;
}

/// Before every schedule: the system's part of it (system.cc).
void begin_system();

}  // namespace verge::orders
