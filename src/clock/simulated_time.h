// SPDX-License-Identifier: Apache-2.0
// The time of a thread that takes part in a simulation.
//
// verge::clock::now() checks it first, so that code under test computes deadlines on the clock of
// its timers. Nothing else reads it: engines and schedulers are passed their clock, and true_now()
// is always the true clock.
#pragma once

#include <atomic>
#include <cstdint>

namespace verge::detail {

/// The time of this thread's simulation; nullptr in real time. Only this thread accesses the
/// pointer. initial-exec: one load, in the shared library too.
[[gnu::tls_model(
    "initial-exec")]] extern thread_local constinit const std::atomic<std::int64_t>* simulated_time;

}  // namespace verge::detail
