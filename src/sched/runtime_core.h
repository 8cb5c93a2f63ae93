// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verge/runtime.h>

#include <atomic>
#include <memory>

#include <base/this_thread.h>
#include <engine/clockwork.h>
#include <sched/live_scheduler.h>
#include <sched/living_schedulers.h>
#include <timer/callback.h>
#include <timer/channel_timer.h>

namespace verge::detail {

/// What a runtime is made of.
struct [[gnu::visibility("hidden")]] runtime_core {
  explicit runtime_core(runtime_options & options);
  /// One that lives until end().
  static runtime_core& make(runtime_options & options);
  /// Ends it. It is destroyed once the last handle to a timer of it is. Allocates nothing.
  void end() noexcept;
  runtime_core(const runtime_core&) = delete;
  runtime_core& operator=(const runtime_core&) = delete;

  /// How the number of processors came about.
  const processor_limits limits;
  std::atomic<processors_from> taken_from;
  live_scheduler scheduler;
  clockwork* timers;  ///< deletes itself, once the last handle is destroyed

  /// Until its end.
  std::shared_ptr<runtime_core> itself;
  /// The list of runtimes that a task of their own has ended, until its worker has returned.
  std::shared_ptr<runtime_core> next_unreturned;
  /// The list of all, for the child of a fork.
  runtime_core* previous{nullptr};
  runtime_core* next{nullptr};
};

/// The default handler of exceptions that no caller takes.
void print_and_terminate(const std::exception_ptr& e);

/// Drops what is queued, and destroys the tasks that are suspended.
template <class Scheduler>
void end_tasks(Scheduler& s) noexcept {
  while (runnable* r = s.take_leftover()) {
    // Callbacks that had fired and not begun. Everything else that is queued is part of a job.
    if (r->run == &run_callback) discard_callback(static_cast<timer_node&>(*r));
  }
  s.abandon_jobs();
}

/// After the scheduler has stopped: takes the timers off their queues, so that nothing fires any
/// more, drops what is queued, destroys the tasks that are suspended, and ends the clockwork;
/// `keep` is released after that. If `hold`, that waits for clockwork::let_go().
template <class Scheduler>
void end_timers_and_tasks(Scheduler& s, clockwork& timers, std::shared_ptr<void> keep = nullptr,
                          bool hold = false) noexcept {
  timers.close();
  timers.its_engine().drain();
  end_tasks(s);
  scheduler_ends(s);
  timers.end(&close_channel_of, std::move(keep), hold);
}

}  // namespace verge::detail
