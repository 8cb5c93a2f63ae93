// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#include <verge/detail/scheduling.h>

namespace verge::detail {

/// Called by every scheduler when it begins and when it ends: an exception that was not taken is
/// passed to the scheduler of the task that it left, if that has not ended. To say that a scheduler
/// ends a second time does nothing.
void scheduler_begins(scheduler& s) noexcept;
void scheduler_ends(scheduler& s) noexcept;
/// The lock of the list that these two keep, for a fork: it must be free in the child.
std::mutex& lock_of_schedulers() noexcept;

/// In the child of a fork: the calling thread, the only one there, belongs to no scheduler any
/// more, and every scheduler and task of before is lost.
void leave_in_child() noexcept;

/// Runs what a scheduler has taken off its queue. If that ends a task, waiters for the task are
/// woken after the last instruction of the task's own code.
void run_ready(runnable& r) noexcept;

}  // namespace verge::detail
