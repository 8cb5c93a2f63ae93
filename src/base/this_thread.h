#pragma once

#include <verge/detail/scheduling.h>

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

/// initial-exec: one load, in the shared library too.
[[gnu::tls_model("initial-exec")]] extern thread_local constinit thread_state this_thread;

}  // namespace verge::detail
