// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <sched/live_scheduler.h>
#include <verge/runtime.h>

namespace verge::detail {

/// Timers by label and place: runtime_stats::labels. Of the pending ones, `pending` in all, a
/// sample is looked at, without a lock.
std::vector<label_stats> labels_of(live_scheduler& s, std::uint64_t pending);

}  // namespace verge::detail
