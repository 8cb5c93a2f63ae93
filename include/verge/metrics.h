// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>

#include <verge/runtime.h>

#pragma GCC visibility push(default)

/// The figures of a runtime, for monitoring.
namespace verge {

/// Writes a runtime's figures in Prometheus' text format, for an endpoint such as /metrics:
///
///   std::ostringstream text;
///   verge::write_prometheus(text, verge::default_runtime().stats());
///
/// Counters begin when the runtime is created and end in _total; times are in seconds. Those of a
/// processor have a label with its number. verge_timer_lateness_seconds is a histogram by powers of
/// two; its sum is taken from the buckets, and true to within a quarter.
void write_prometheus(std::ostream& out, const runtime_stats& figures);

}  // namespace verge

#pragma GCC visibility pop
