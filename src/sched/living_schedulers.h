#pragma once

#include <mutex>

#include <verge/detail/scheduling.h>

namespace verge::detail {

/// Every scheduler says when it begins and when it ends: an exception that nobody has taken goes
/// to the one whose task it left, if that one is still there. The second says it again in vain.
void scheduler_begins(scheduler& s) noexcept;
void scheduler_ends(scheduler& s) noexcept;
/// That of the list which these keep, for a fork: it must be free in the child.
std::mutex& lock_of_schedulers() noexcept;

/// In the child of a fork: the calling thread, the only one there, belongs to nothing any more, and
/// every scheduler and task of before is lost.
void leave_in_child() noexcept;

/// Runs what a scheduler has taken off its queue. If that ends a task, whatever waits for the task
/// learns of it after the last instruction of the task's own code.
void run_ready(runnable& r) noexcept;

}  // namespace verge::detail
