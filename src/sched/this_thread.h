#pragma once

#include <verge/detail/scheduling.h>

#include <mutex>

namespace verge::detail {

class ready_list;
class spawned_base;
struct runnable;
struct worker;

/// What the calling thread is to verge. Only this thread reads or writes it.
struct thread_state {
  scheduler* current{nullptr};  ///< whose worker or simulated thread it is
  worker* as_worker{nullptr};   ///< it, as a worker of a live scheduler
  bool drives_engine{false};    ///< it is an engine's own: what it makes ready are timers
  bool takes_turns{false};      ///< it is a simulation's own
  job* running{nullptr};        ///< the job it runs a piece of
  /// That job has ended, and will be said to have when its code has returned; see run_ready().
  spawned_base* ended{nullptr};
  /// While it works through the events of a poll: the scheduler that it polls for, and where what
  /// they make ready goes, to be queued all at once.
  const scheduler* polls_for{nullptr};
  ready_list* found{nullptr};
};

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

/// initial-exec: one load, in the shared library too.
[[gnu::tls_model("initial-exec")]] extern thread_local constinit thread_state this_thread;

}  // namespace verge::detail
