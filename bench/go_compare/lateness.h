// SPDX-License-Identifier: Apache-2.0
// How late timers are: the workloads that take samples, one for each of bench/go/lateness.go.
#pragma once

#include <verge/runtime.h>

#include "figures.h"

namespace verge::bench {

figures sleep_lateness(runtime& rt, const parameters& p);
figures parallel_timer_latency(runtime& rt, const parameters& p);
figures staggered_ticker_latency(runtime& rt, const parameters& p);

}  // namespace verge::bench
