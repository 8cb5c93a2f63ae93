#pragma once

#include <verge/detail/scheduling.h>

namespace verge::detail {

class ready_list;
class spawned_base;
struct runnable;
struct worker;

/// The calling thread's role in verge. Only this thread reads or writes it.
struct thread_state {
  scheduler* current{nullptr};  ///< the scheduler whose worker or simulated thread it is
  worker* as_worker{nullptr};   ///< if it is a worker of a live scheduler
  bool drives_engine{false};    ///< it is an engine's thread: what it makes ready are timers
  bool takes_turns{false};      ///< it is a simulation's thread
  job* running{nullptr};        ///< the job it is running
  /// That job has ended; this is published after its code has returned, see run_ready().
  spawned_base* ended{nullptr};
  /// While it processes the events of a poll: the scheduler that it polls for, and the list of what
  /// they make ready, which is queued in one batch.
  const scheduler* polls_for{nullptr};
  ready_list* found{nullptr};
};

/// initial-exec: one load, in the shared library too.
[[gnu::tls_model("initial-exec")]] extern thread_local constinit thread_state this_thread;

}  // namespace verge::detail
