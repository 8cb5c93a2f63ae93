#pragma once

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <mutex>

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
///  - Of all the events a waiter is registered with, exactly one wins: the one whose claim()
///    returns true. The winner, and nobody else, then calls wake(), once, as its last touch of
///    the waiter: the moment wake() is called the waiter may resume on another thread and be gone.
///  - Whoever owns the waiter takes it off every event it was registered with (the losers) before
///    the waiter's memory goes; an event that finds a waiter already claimed skips it.
namespace verge::detail {

class scheduler;
class thread_waiter;

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

  /// What the task waits for, for reports; nullptr while it runs or could run.
  std::atomic<const char*> waiting_for{nullptr};

  /// Destroys a suspended task when its runtime ends. Set by whoever made the job.
  void (*abandon)(job&) noexcept {nullptr};

  /// The scheduler's list of live jobs.
  job* prev_live{nullptr};
  job* next_live{nullptr};

  /// Guards `pending` and `cancelled`.
  std::mutex cancel_lock;
  /// What the task is suspended on right now, if it can be cancelled.
  class waiter* pending{nullptr};
  bool cancelled{false};
};

/// The scheduler whose worker, or whose simulated thread, the calling thread is; else nullptr.
scheduler* current_scheduler() noexcept;
/// The current scheduler, or that of the default runtime, which is started if it has not been.
scheduler& scheduler_or_default();
/// The job that the calling thread is running a piece of, or nullptr.
job* current_job() noexcept;
void set_current_job(job*) noexcept;

class scheduler {
 public:
  scheduler() = default;
  scheduler(const scheduler&) = delete;
  scheduler& operator=(const scheduler&) = delete;

  /// Makes r run soon. From any thread.
  virtual void ready(runnable& r) noexcept = 0;
  /// Makes r run as soon as the calling task suspends, where that can be had: what a task that
  /// hands something over wants for the receiver. From any thread.
  virtual void ready_next(runnable& r) noexcept = 0;
  /// Makes r run after all that is ready now: what a task that yields wants for itself.
  virtual void ready_last(runnable& r) noexcept = 0;

  /// Nanoseconds on this scheduler's clock: the true clock, or simulated time.
  virtual std::int64_t now() noexcept = 0;

  /// Blocks the calling thread until w is woken. A worker gives its processor away for that time.
  virtual void block(thread_waiter& w, const char* waiting_for) noexcept = 0;
  /// Ends a block() of w, also one that has yet to begin. From any thread.
  virtual void unblock(thread_waiter& w) noexcept = 0;

  /// Every job says when it begins and when it has ended.
  virtual void job_started(job&) = 0;
  virtual void job_ended(job&) noexcept = 0;

  /// Takes an exception that nobody else will: out of a callback, or out of a detached task.
  virtual void unhandled(std::exception_ptr) noexcept = 0;

 protected:
  ~scheduler() = default;
};

/// A party that waits for one of several events.
class waiter {
 public:
  using wake_fn = void (*)(waiter&) noexcept;
  static constexpr std::uint32_t nobody = 0;
  static constexpr std::uint32_t by_cancellation = UINT32_MAX;

  explicit waiter(wake_fn how) noexcept : wake_(how) {}
  waiter(const waiter&) = delete;
  waiter& operator=(const waiter&) = delete;

  /// Tries to become the one event that ends the wait. `ticket` says which event this is and must
  /// not be `nobody`. Acquire and release: the winner sees what the owner wrote before it
  /// registered, and the owner sees what the winner wrote before it claimed or woke.
  bool claim(std::uint32_t ticket) noexcept {
    std::uint32_t expected = nobody;
    return winner_.compare_exchange_strong(expected, ticket, std::memory_order_acq_rel,
                                           std::memory_order_acquire);
  }
  /// Which event has won, or `nobody`.
  std::uint32_t winner() const noexcept { return winner_.load(std::memory_order_acquire); }

  /// To be called once, by the winner.
  void wake() noexcept { wake_(*this); }

 protected:
  ~waiter() = default;
  void rearm() noexcept { winner_.store(nobody, std::memory_order_relaxed); }

 private:
  wake_fn wake_;
  std::atomic<std::uint32_t> winner_{nobody};
};

/// A coroutine that waits. It lives in the awaiter, and so in the coroutine's frame.
class coroutine_waiter : public waiter, public runnable {
 public:
  coroutine_waiter() noexcept : waiter(&wake_coroutine), runnable{&resume_coroutine} {}

  /// Says which coroutine is to be resumed, and what it waits for (a string that lives for ever).
  /// To be called in await_suspend, before the waiter is registered with any event.
  void suspend(std::coroutine_handle<> h, const char* waiting_for) {
    handle_ = h;
    job_ = current_job();
    scheduler_ = job_ != nullptr && job_->home != nullptr ? job_->home : &scheduler_or_default();
    if (job_ != nullptr) job_->waiting_for.store(waiting_for, std::memory_order_relaxed);
  }

  scheduler& home() const noexcept { return *scheduler_; }
  job* suspended_job() const noexcept { return job_; }

 private:
  static void wake_coroutine(waiter& w) noexcept {
    auto& self = static_cast<coroutine_waiter&>(w);
    self.scheduler_->ready_next(self);
  }
  static void resume_coroutine(runnable& r) noexcept {
    auto& self = static_cast<coroutine_waiter&>(r);
    set_current_job(self.job_);
    if (self.job_ != nullptr) self.job_->waiting_for.store(nullptr, std::memory_order_relaxed);
    self.handle_.resume();  // self is gone when this returns
    set_current_job(nullptr);
  }

  std::coroutine_handle<> handle_;
  scheduler* scheduler_{nullptr};
  job* job_{nullptr};
};

/// A thread that waits.
class thread_waiter : public waiter {
 public:
  thread_waiter() noexcept : waiter(&wake_thread), scheduler_(current_scheduler()) {}

  /// Blocks until woken.
  void wait(const char* waiting_for) noexcept;

  /// For schedulers: the kernel's side of blocking and of waking.
  void wait_in_kernel() noexcept;
  void wake_in_kernel() noexcept;
  bool woken() const noexcept { return word_.load(std::memory_order_acquire) != 0; }

 private:
  static void wake_thread(waiter& w) noexcept;

  scheduler* scheduler_;
  std::atomic<std::uint32_t> word_{0};
};

}  // namespace verge::detail

#pragma GCC visibility pop
