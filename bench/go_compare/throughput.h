// SPDX-License-Identifier: Apache-2.0
// What timers cost: the workloads that count operations, one for each of bench/go/throughput.go.
#pragma once

#include <verge/runtime.h>

#include "figures.h"

namespace verge::bench {

figures after_func_chain(runtime& rt, const parameters& p);
figures after(runtime& rt, const parameters& p);
figures stop(runtime& rt, const parameters& p);
figures simultaneous_after_func(runtime& rt, const parameters& p);
figures start_stop(runtime& rt, const parameters& p);
figures reset(runtime& rt, const parameters& p);
figures sleep(runtime& rt, const parameters& p);
figures ticker(runtime& rt, const parameters& p);
figures ticker_reset(runtime& rt, const parameters& p);
figures adjust_timers_10000(runtime& rt, const parameters& p);

/// with_timeout and cancel, over as many live contexts: of the background, and of one parent.
figures context_timeout(runtime& rt, const parameters& p);
figures context_child(runtime& rt, const parameters& p);

/// From plain threads that hold no processor, beside Go's tasks, which always do.
figures stop_on_threads(runtime& rt, const parameters& p);
figures start_stop_on_threads(runtime& rt, const parameters& p);
figures reset_on_threads(runtime& rt, const parameters& p);

figures yield(runtime& rt, const parameters& p);
figures chan_handover(runtime& rt, const parameters& p);

}  // namespace verge::bench
