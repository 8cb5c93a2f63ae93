// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <memory>

#include <verge/detail/transfer.h>
#include <verge/detail/waiter.h>

#pragma GCC visibility push(default)

/// What tasks, channels and timers need of a scheduler, and nothing else of it.
///
/// Three small things meet here. A *runnable* is what a worker can run. A *waiter* is a party -
/// a suspended coroutine or a blocked thread - that waits for one of several events. A *scheduler*
/// makes runnables run and lets threads block. Channels, select, join, sleep and cancellation are
/// all written against these three, so each of them works for coroutines and plain threads, in
/// real and in simulated time, without knowing which.
///
/// Ground rules
///  - A runnable is on at most one queue at a time. `next` belongs to the queue it is on.
///  - A runnable belongs to the thread that runs it from the moment it is made ready: it may run,
///    and be destroyed, before ready() returns.
///  - The rules for waiters are in waiter.h.
namespace verge {
class runtime;
class simulation;
}  // namespace verge

namespace verge::detail {

class [[gnu::visibility("hidden")]] clockwork;
class [[gnu::visibility("hidden")]] poller;
class scheduler;
class thread_waiter;
struct worker;

/// The process in which something was made. The child of a fork has none of the threads that serve
/// what was made before, and locks may be held there forever.
class process_mark {
 public:
  process_mark() noexcept;
  /// Whether this is the child of a fork that happened since.
  bool lost() const noexcept;
  /// Throws std::logic_error if so. `what` is a noun: "runtime".
  void refuse(const char* what) const;

 private:
  std::uint32_t forks_;
};

/// Something a worker can run: a coroutine to resume, a callback whose time has come.
struct runnable {
  using run_fn = void (*)(runnable&) noexcept;

  run_fn run{nullptr};
  runnable* next{nullptr};
};

/// One spawned task: a root coroutine together with all that it awaits, or a callable.
/// Its record lets a deadlock report say what the task waits for, lets a cancellation find what it
/// is suspended on, and lets a runtime that ends destroy what is still suspended.
struct job {
  scheduler* home{nullptr};

  /// What the task waits for, for reports; nullptr while it runs or could run. And since when, to
  /// within some 10 ms (coarse_now).
  std::atomic<const char*> waiting_for{nullptr};
  std::atomic<std::int64_t> waiting_since{0};
  /// The code that waits: of the innermost coroutine.
  std::atomic<const void*> waiting_in{nullptr};

  /// What it is, for reports: the label that it has given itself, the type of the callable that was
  /// spawned (site.h), and the address of its code; each may be null.
  std::atomic<const char*> label{nullptr};
  const char* written{nullptr};
  const void* code{nullptr};

  /// Destroys a task that is suspended or has yet to begin, when its runtime ends: its frames are
  /// destroyed, a join of it throws `cancelled`, and job_ended() is called for it. Nothing of the
  /// task may be running, and what is ready of it must have been taken off its queue; other threads
  /// may be about to make it ready, see scheduler::visit. nullptr while the task is a callable that
  /// runs.
  void (*abandon)(job&) noexcept {nullptr};

  /// The scheduler's list of live jobs (job_list.h), and how many had begun when this one did.
  std::uint64_t number{0};
  job* prev_live{nullptr};
  job* next_live{nullptr};

  /// How much it may still complete in this turn, see operations_per_turn. Written by the thread
  /// that runs it. Atomic because coroutines of a user's type may run beside the task as parts of
  /// it.
  std::atomic<std::uint32_t> budget{0};
  /// The worker that ran a piece of it last, and whether it ever began one while another worker was
  /// still returning from the piece before. Relaxed: what makes the job ready publishes them.
  std::atomic<worker*> runner{nullptr};
  std::atomic<bool> spread{false};

  /// Fires when the task is cancelled. What the task is suspended on, if it can be cancelled, has
  /// subscribed to it; see operation.h.
  one_shot cancellation;
};

/// How many operations a task may complete in one turn without having to wait. With the next one it
/// yields: a task that always finds data would otherwise keep its processor forever. A system call
/// counts as eight, as it takes that much longer and more. So a turn takes some microseconds, or
/// some hundred where each call moves 64 KiB; and to yield, at 50 ns, is one or two percent of it.
inline constexpr std::uint32_t operations_per_turn = 128;
inline constexpr std::uint32_t operations_per_system_call = 8;

/// A time in nanoseconds on the true clock that costs a load: that of the last look of any monitor,
/// or of a worker's last wake-up. While something runs it is 10 ms old at most.
extern constinit std::atomic<std::int64_t> coarse_now;

/// The scheduler whose worker, or whose simulated thread, the calling thread is; else nullptr.
scheduler* current_scheduler() noexcept;
/// The current scheduler, or that of the default runtime, which is started if it has not been.
scheduler& scheduler_or_default();
/// The scheduler of that runtime, of that simulation.
scheduler& scheduler_of(runtime& rt) noexcept;
scheduler& scheduler_of(simulation& sim) noexcept;
/// The job that the calling thread is running a piece of, or nullptr.
job* current_job() noexcept;
/// The calling thread begins to run a piece of a job, whose turn begins, or has run it (nullptr).
void set_current_job(job*) noexcept;

class scheduler {
 public:
  scheduler() = default;
  scheduler(const scheduler&) = delete;
  scheduler& operator=(const scheduler&) = delete;

  /// Makes r run soon. From any thread.
  virtual void ready(runnable& r) noexcept = 0;
  /// Makes r run as soon as the calling task suspends, if possible: what a task that hands
  /// something over wants for the receiver. From any thread.
  virtual void ready_next(runnable& r) noexcept = 0;
  /// Makes r run after all that is ready now: what a task that yields wants for itself.
  virtual void ready_last(runnable& r) noexcept = 0;

  /// Nanoseconds on this scheduler's clock: the true clock, or simulated time.
  virtual std::int64_t now() noexcept = 0;

  /// A random number, for a fair choice. In simulated time the seed decides.
  virtual std::uint64_t random() noexcept = 0;

  /// Blocks the calling thread until w is woken. A worker gives its processor away for that time.
  virtual void block(thread_waiter& w, const char* waiting_for) noexcept = 0;
  /// Ends a block() of w, also one that has yet to begin. From any thread.
  virtual void unblock(thread_waiter& w) noexcept = 0;

  /// Around a call that is known to block: a worker gives its processor away for that time.
  virtual void enter_blocking() noexcept = 0;
  virtual void leave_blocking() noexcept = 0;

  /// The timers that go by this scheduler's clock.
  virtual clockwork& timers() noexcept = 0;

  /// The poller of this scheduler's descriptors; nullptr in simulated time, where there
  /// is none. It outlives the scheduler for as long as it is referred to.
  virtual std::shared_ptr<poller> net() noexcept { return nullptr; }

  /// Every job says when it begins and when it has ended.
  virtual void job_started(job&) = 0;
  virtual void job_ended(job&) noexcept = 0;

  /// Takes an exception that no caller can: out of a callback, or out of a detached task.
  virtual void unhandled(std::exception_ptr) noexcept = 0;

  /// The list of all there are, which scheduler_begins() and scheduler_ends() keep.
  scheduler* next_living{nullptr};

  /// Held by a thread that wakes a coroutine, from before it is woken until it has been made ready.
  /// A thread that is not the scheduler's own could otherwise use a scheduler that was destroyed
  /// meanwhile.
  class visit {
   public:
    explicit visit(scheduler& s) noexcept : to_(s), foreign_(current_scheduler() != &s) {
      // Published by what wakes the coroutine.
      if (foreign_) to_.visitors_.fetch_add(1, std::memory_order_relaxed);
    }
    ~visit() {
      if (foreign_) to_.visitors_.fetch_sub(1, std::memory_order_release);
    }
    visit(const visit&) = delete;
    visit& operator=(const visit&) = delete;

    scheduler& to() const noexcept { return to_; }

   private:
    scheduler& to_;
    const bool foreign_;
  };

 protected:
  ~scheduler() = default;

  /// The last step in the end of a scheduler, after every job is abandoned: no new visit begins,
  /// but some may not have ended. From when the first job is abandoned, ready() and its like must
  /// not touch what a foreign thread makes ready: it may have been destroyed.
  void wait_for_visitors() const noexcept {
    backoff patience;
    while (visitors_.load(std::memory_order_acquire) != 0) patience.wait();
  }

 private:
  std::atomic<std::uint32_t> visitors_{0};
};

/// A coroutine that waits. It lives in the awaiter, and so in the coroutine's frame.
///
/// The wake-up may come before the coroutine is suspended (waiter.h). `phase_` settles that: the
/// owner, when it has registered everywhere, parks; the winner wakes; the second of the two makes
/// the coroutine continue - the owner by not suspending, the winner through the scheduler.
class coroutine_waiter : public waiter, public runnable {
 public:
  /// j is the calling task's job, or nullptr if the coroutine belongs to no job.
  explicit coroutine_waiter(job* j)
      : waiter(&wake_coroutine),
        runnable{&resume_coroutine},
        scheduler_(j != nullptr ? j->home : &scheduler_or_default()),
        job_(j) {}

  /// To be called in await_suspend, before the waiter is registered with any event.
  void suspend(std::coroutine_handle<> h) noexcept { handle_ = h; }

  /// The last step of await_suspend: true if the coroutine stays suspended - then it may have been
  /// resumed, and the waiter destroyed - and false if it is woken already.
  bool park() noexcept {
    // Release: the thread that resumes the coroutine sees all that it did. Acquire: if it is woken,
    // it sees what the winner did.
    return phase_.exchange(parked, std::memory_order_acq_rel) != woken;
  }

  /// Abandons the wait of a parked coroutine that is about to be destroyed. Once this returns no
  /// thread wakes it, and only events that it is still registered with know it.
  void abandon_wait() noexcept {
    if (claim(by_owner)) return;
    // An event has won. Keep it from making the coroutine ready, then let it finish. If that is too
    // late, then the coroutine was ready, and the caller has taken it off its queue.
    auto expected = parked;
    if (!phase_.compare_exchange_strong(expected, unparked, std::memory_order_acq_rel)) return;
    backoff patience;
    while (phase_.load(std::memory_order_acquire) != woken) patience.wait();
  }

  /// For another wait, after one that has ended.
  void rearm() noexcept {
    forget_winner();
    phase_.store(unparked, std::memory_order_relaxed);
  }

  scheduler& home() const noexcept { return *scheduler_; }

  /// The code of the coroutine, for reports: what a frame begins with.
  const void* code() const noexcept {
    return handle_ ? *static_cast<const void* const*>(handle_.address()) : nullptr;
  }

 protected:
  job* its_job() const noexcept { return job_; }

  static void resume_coroutine(runnable& r) noexcept {
    auto& self = static_cast<coroutine_waiter&>(r);
    set_current_job(self.job_);
    run_coroutine(self.handle_);  // destroys self
    set_current_job(nullptr);
  }

 private:
  enum phase : std::uint32_t { unparked, parked, woken };

  /// Not inline: the coroutine may have ended, and its code been unloaded, before this returns.
  static void wake_coroutine(waiter& w) noexcept;

  std::coroutine_handle<> handle_;
  scheduler* scheduler_;
  job* job_;
  std::atomic<phase> phase_{unparked};
};

/// A thread that waits.
class thread_waiter : public waiter {
 public:
  /// What happens to a wait that can never end, which only a simulation finds out: the wait ends
  /// by_deadlock and its owner throws, or the program stops.
  enum class on_deadlock : std::uint8_t { stop_program, end_wait };

  thread_waiter() noexcept : thread_waiter(on_deadlock::stop_program) {}
  explicit thread_waiter(on_deadlock d) noexcept
      : waiter(&wake_thread), scheduler_(current_scheduler()), on_deadlock_(d) {}

  /// Blocks until woken.
  void wait(const char* waiting_for) noexcept;

  /// A thread's code is on its stack: wait() finds it.
  const void* code() const noexcept { return nullptr; }

  /// For another wait, after one that has ended.
  void rearm() noexcept {
    forget_winner();
    word_.store(0, std::memory_order_relaxed);
  }

  /// For schedulers: the kernel's side of blocking and of waking.
  [[gnu::visibility("hidden")]] void wait_in_kernel() noexcept;
  [[gnu::visibility("hidden")]] void wake_in_kernel() noexcept;
  bool woken() const noexcept { return word_.load(std::memory_order_acquire) != 0; }
  bool may_end_by_deadlock() const noexcept { return on_deadlock_ == on_deadlock::end_wait; }

 private:
  static void wake_thread(waiter& w) noexcept;

  scheduler* scheduler_;
  std::atomic<std::uint32_t> word_{0};
  on_deadlock on_deadlock_;
};

}  // namespace verge::detail

#pragma GCC visibility pop
