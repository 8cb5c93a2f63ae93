// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <base/futex.h>
#include <base/xorshift.h>
#include <engine/engine.h>
#include <sched/job_list.h>
#include <verge/detail/scheduling.h>

/// The scheduler in simulated time: one thing runs at a time, and time moves when nothing can.
///
/// There is one baton. The thread that holds it runs; all others wait for it. It is held by a
/// thread that takes part, while that runs the code under test, or by a *turner*: a thread of the
/// scheduler's own that takes turns, picking one of the ready things at random and running it if it
/// is a task, or handing the baton on if it is a thread. When nothing is ready the turner moves
/// time to the next timer.
///
/// Ground rules
///  - Everything below `lock_` is guarded by it. The lock is not held while anything runs.
///  - Only the holder of the baton runs tasks, fires timers or moves time. `now_` is written by it
///    alone and read by any thread.
///  - A thread that blocks hands the baton to a turner and sleeps until a turner gives it back:
///    when its wait has ended and it is its turn.
///  - The order of everything depends only on the seed and on what the holder did: what becomes
///    ready is appended by the holder. (Threads that take no part may make things ready too; a run
///    with such threads is not repeatable.)
namespace verge::detail {

class [[gnu::visibility("hidden")]] simulated_scheduler final : public scheduler,
                                                                public engine_host {
 public:
  simulated_scheduler(std::uint64_t seed, std::int64_t start,
                      std::function<void(std::exception_ptr)> handler);
  ~simulated_scheduler();

  void start(clockwork & timers);
  /// Ends the turners. Called with the baton.
  void stop() noexcept;
  runnable* take_leftover() noexcept;
  void abandon_jobs() noexcept;

  /// The calling thread takes part from now on, or no longer. It gets the baton at once, because no
  /// other thread has it yet.
  void enter() noexcept;
  void leave() noexcept;
  /// The same for a further thread, which waits for its turn.
  void join_in() noexcept;
  void drop_out() noexcept;

  /// Gives the baton away until `done`. False on a deadlock; report() says which.
  bool run_until(const std::function<bool()>& done);
  /// The same until so much time has passed, and all that is due by then is done.
  bool run_for(std::int64_t d);
  std::string report() const;
  /// For a thread whose wait ended by_deadlock, before it gives the baton away.
  std::string report_of_deadlock() const;

  /// Throws std::logic_error in the child of a fork, where its threads do not exist.
  void refuse_if_lost() const { made_in_.refuse("simulation"); }
  bool lost() const noexcept { return made_in_.lost(); }

  std::uint64_t jumps() const noexcept { return jumps_.load(std::memory_order_relaxed); }
  std::uint64_t seed() const noexcept { return seed_; }

  // scheduler
  void ready(runnable & r) noexcept override;
  void ready_next(runnable & r) noexcept override { ready(r); }
  void ready_last(runnable & r) noexcept override { ready(r); }
  std::int64_t now() noexcept override { return now_.load(std::memory_order_acquire); }
  std::uint64_t random() noexcept override;
  void block(thread_waiter & w, const char* waiting_for) noexcept override;
  void unblock(thread_waiter & w) noexcept override;
  void enter_blocking() noexcept override {}
  void leave_blocking() noexcept override {}
  void job_started(job & j) override;
  void job_ended(job & j) noexcept override;
  void unhandled(std::exception_ptr e) noexcept override { handler_(std::move(e)); }
  clockwork& timers() noexcept override { return *timers_; }

  // engine_host
  bool simulated() const noexcept override { return true; }
  std::int64_t cheap_now() noexcept override { return now(); }
  unsigned home_processor() noexcept override { return 0; }
  void wake_net_poller(std::int64_t) noexcept override {}
  void timer_fired(std::int64_t, std::int64_t) noexcept override {}

 private:
  /// Which waits are told of a deadlock first: that of a thread of the program, which can handle
  /// it; then that of a plain function, whose handle gets the exception; then that of a callback.
  enum class hears : std::uint8_t { first, second, last };
  static hears of_deadlock() noexcept;

  /// A thread that waits: for something, or for its turn.
  struct blocked_thread {
    thread_waiter* waiter{nullptr};
    const char* waiting_for;
    const std::function<bool()>* until{nullptr};  ///< for run_until, in place of a waiter
    std::int64_t end{std::numeric_limits<std::int64_t>::max()};  ///< for run_for, the same
    hears rank{of_deadlock()};
    note turn{};
    bool deadlocked{false};
  };
  struct turner {
    note turn;
    std::thread thread;
  };

  /// This thread is the simulation's from now on, and uses its time, or is no longer.
  void adopt_this_thread() noexcept;
  static void release_this_thread() noexcept;

  void take_turns(turner & self) noexcept;
  void hand_over_locked(turner & self, blocked_thread & to, std::unique_lock<std::mutex> & held);
  blocked_thread* take_finished_run_locked() noexcept;
  void give_baton_to_turner_locked();
  bool give_baton_away(blocked_thread & me);
  blocked_thread* move_time(std::unique_lock<std::mutex> & held) noexcept;
  void jump_to(std::int64_t t) noexcept;
  blocked_thread* take_blocked_locked(std::vector<blocked_thread*>::iterator which) noexcept;
  /// Whether it waits in run_until or run_for, which say that there is a deadlock.
  static bool waits_in_run(const blocked_thread* b) noexcept { return b->waiter == nullptr; }
  std::string deadlock_locked() const;
  std::string state_of_timers_locked() const;
  std::string waiting_locked() const;
  blocked_thread* check_dead_locked() noexcept;

  const process_mark made_in_;
  const std::uint64_t seed_;
  xorshift random_;
  std::function<void(std::exception_ptr)> handler_;
  clockwork* timers_{nullptr};
  timer_engine* engine_{nullptr};
  std::atomic<std::int64_t> now_;
  std::atomic<std::uint64_t> jumps_{0};

  mutable std::mutex lock_;
  std::vector<runnable*> ready_tasks_;
  std::vector<blocked_thread*> ready_threads_;
  std::vector<blocked_thread*> blocked_;
  std::vector<std::unique_ptr<turner>> turners_;
  std::vector<turner*> idle_turners_;
  std::string deadlock_found_;
  bool stopping_{false};
  /// When time was last to be moved there were timers, but none that is ever due.
  bool only_never_{false};

  job_list jobs_;
};

/// A time, rounded down, for reports.
std::string in_years(std::int64_t t);

}  // namespace verge::detail
