// SPDX-License-Identifier: Apache-2.0
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
  /// While it processes the events of a poll, or a batch of timers: the scheduler that it does that
  /// for, and the list of what they make ready, which is queued in one batch (onto_list).
  const scheduler* collects_for{nullptr};
  ready_list* found{nullptr};
};

/// initial-exec: one load, in the shared library too.
[[gnu::tls_model("initial-exec")]] extern thread_local constinit thread_state this_thread;

/// During its lifetime, what the calling thread makes ready on that scheduler is added to the list.
/// Not within the lifetime of another.
class onto_list {
 public:
  onto_list(const scheduler* s, ready_list& list) noexcept {
    this_thread.found = &list;
    this_thread.collects_for = s;
  }
  ~onto_list() {
    this_thread.collects_for = nullptr;
    this_thread.found = nullptr;
  }
  onto_list(const onto_list&) = delete;
  onto_list& operator=(const onto_list&) = delete;
};

}  // namespace verge::detail
