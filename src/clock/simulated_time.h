// The time that a thread goes by in place of the true one, while it takes part in a simulation.
//
// It is what verge::clock::now() looks at first, so that code under test which computes a deadline
// from the clock gets one that means something to its timers. Nothing else here asks for it:
// engines and schedulers are handed their clock, and true_now() is the true one anywhere.
#pragma once

#include <atomic>
#include <cstdint>

namespace verge::detail {

/// Where the time of this thread's simulation stands; nullptr in real time. Only this thread
/// touches the pointer. initial-exec: one load, in the shared library too.
[[gnu::tls_model(
    "initial-exec")]] extern thread_local constinit const std::atomic<std::int64_t>* simulated_time;

}  // namespace verge::detail
