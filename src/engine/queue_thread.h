// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>

#include <base/futex.h>
#include <base/runtime_thread.h>
#include <base/this_thread.h>
#include <clock/arithmetic.h>
#include <clock/fast_clock.h>
#include <engine/engine.h>
#include <node/node_store.h>
#include <verge/detail/lock.h>

/// A queue of timers, the lock around it, and the thread that sleeps until the first of them is
/// due: the driver of every engine whose timers are not in processors.
///
/// The thread only makes ready: what a timer does is run by the runtime, as a task of its own. It
/// starts with the first timer. In simulated time there is no thread, and the simulation calls
/// run_due itself.
///
/// Ground rules
///  - `lock_` guards the queue and every node's part of it: on the queue or not, when, period. The
///    period is in the payload's second half (timer_node.h), of timers only that have one.
///    Nothing is fired, woken or freed while it is held.
///  - `sleeps_until_` is the time until which the thread has said, under the lock, that it sleeps;
///    a thread that puts something earlier on the queue leaves the note. 0 while the thread is
///    awake, and then it looks at the queue before it sleeps again.
///  - `sleep_` counts its sleeps, under the lock. `noted_` is the last one that a thread has ended:
///    it is written after the note has reached the sleeper. So one note per sleep is enough, and no
///    thread relies on a note that another was about to leave when it lost its core.
///  - The queue holds a reference on each node that waits on it. A one-shot that fires keeps it
///    until it has fired; a periodic one, which stays on the queue, takes another for that time.
namespace verge::detail {

/// On lines of its own: two processors may use two of them.
template <class Queue>
class alignas(128) queue_thread {
 public:
  /// The hook comes first: with one of 8 bytes, and the slab's header, it fills a cache line.
  struct node : Queue::hook, timer_node {};

  template <class... Args>
  explicit queue_thread(engine_host& host, Args&&... args)
      : host_(host), queue_(std::forward<Args>(args)...) {}
  ~queue_thread() {
    if (thread_.joinable()) stop();
  }
  queue_thread(const queue_thread&) = delete;
  queue_thread& operator=(const queue_thread&) = delete;

  /// Starts the thread. Throws std::logic_error if it runs, std::system_error if there is none.
  void start() {
    std::lock_guard held(thread_lock_);
    if (drained_) return;
    if (thread_.joinable()) {
      throw std::logic_error("verge: this timer thread has been started already; stop it first");
    }
    stopping_.store(false, std::memory_order_relaxed);
    thread_ = start_runtime_thread(host_.thread_name("timers"), [this] { drive(); });
    started_.store(true, std::memory_order_release);
  }
  /// Ends it. Pending timers stay pending. Throws std::logic_error if it does not run.
  void stop() {
    std::lock_guard held(thread_lock_);
    if (!thread_.joinable()) {
      throw std::logic_error("verge: this timer thread does not run; start it first");
    }
    join_locked();
  }
  [[nodiscard]] bool running() const noexcept { return started_.load(std::memory_order_acquire); }

  /// Puts a timer on the queue, or moves it there. True if it was waiting.
  bool insert(node& t, std::int64_t when, std::int64_t period) {
    if (!running() && !host_.simulated()) start_once();
    bool waited = false;
    bool earlier = false;
    std::uint64_t sleep = 0;
    // The cheap time may be ahead of the true one, which decides what is due; this is not.
    const auto now = [this] { return as_time(host_.cheap_now() - fast_clock::max_ahead); };
    {
      std::lock_guard held(lock_);
      waited = Queue::waits(t);
      if (waited) {
        queue_.move(t, when, period, now);
      } else {
        queue_.insert(t, when, period, now);
        t.refs.fetch_add(1, std::memory_order_relaxed);
      }
      if (period != 0) period_of(t) = period;
      const std::int64_t until = sleeps_until_;
      sleep = sleep_;
      earlier =
          until != 0 && queue_.next() < until && noted_.load(std::memory_order_relaxed) != sleep;
    }
    if (earlier) {
      note_.leave_surely();
      noted_.store(sleep, std::memory_order_relaxed);
    }
    return waited;
  }

  bool erase(node& t) noexcept {
    std::lock_guard held(lock_);
    if (!Queue::waits(t)) return false;
    queue_.erase(t);
    // Never the last one: the caller has a reference.
    t.refs.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }

  /// Fires what is due. Returns how many that were.
  unsigned run_due(std::int64_t now) noexcept {
    for (unsigned ran = 0;; ++ran) {
      node* t = nullptr;
      std::exception_ptr error;
      {
        std::lock_guard held(lock_);
        const auto due = queue_.pop_due(now);
        if (due.timer == nullptr) return ran;
        t = static_cast<node*>(due.timer);
        // A thread that starts a timer moves a wheel's hand as well, and may be ahead of `now`.
        if (due.when > now) now = host_.now();
        host_.fires(*t, due.when, now);
        if (due.periodic) error = repeat(*t, due.when, now);
      }
      t->does.load(std::memory_order_acquire)->fire(*t, now);
      if (error) node_store::of(*t).home().unhandled(std::move(error));
      node_store::of(*t).release(*t);
    }
  }

  /// When the first timer fires; 0 if there is none. For simulated time.
  [[nodiscard]] std::int64_t next_exactly() const noexcept {
    std::lock_guard held(lock_);
    return queue_.next_exactly();
  }
  /// Calls f(arg, timer, when) for each that waits, with the lock held.
  void for_each(void (*f)(void*, const timer_node&, std::int64_t), void* arg) const {
    std::lock_guard held(lock_);
    queue_.for_each([&](const typename Queue::hook& t, std::int64_t when) {
      f(arg, static_cast<const node&>(t), when);
    });
  }
  [[nodiscard]] std::size_t size() const noexcept {
    std::lock_guard held(lock_);
    return queue_.size();
  }
  [[nodiscard]] std::size_t bytes() const noexcept {
    std::lock_guard held(lock_);
    return sizeof(*this) + queue_.bytes();
  }
  [[nodiscard]] std::string verify() const {
    std::lock_guard held(lock_);
    return queue_.verify();
  }
  /// How often the thread woke.
  [[nodiscard]] std::uint64_t wakeups() const noexcept {
    return wakeups_.load(std::memory_order_relaxed);
  }

  /// Ends the thread for good, and takes all timers off.
  void drain() noexcept {
    {
      std::lock_guard held(thread_lock_);
      drained_ = true;
      if (thread_.joinable()) join_locked();
    }
    for (;;) {
      node* t = nullptr;
      {
        std::lock_guard held(lock_);
        t = static_cast<node*>(queue_.pop_any().timer);
      }
      if (t == nullptr) return;
      node_store::of(*t).release(*t);
    }
  }

 private:
  void join_locked() noexcept {
    stopping_.store(true, std::memory_order_release);
    note_.leave();
    thread_.join();
    started_.store(false, std::memory_order_relaxed);
  }

  void start_once() {
    try {
      start();
    } catch (const std::logic_error&) {
      // Another thread was faster.
    }
  }

  /// With the lock held: puts a periodic timer that is about to fire back on the queue. If there is
  /// no memory for its place it fires for the last time, and the error is reported.
  std::exception_ptr repeat(node& t, std::int64_t when, std::int64_t now) noexcept {
    const std::int64_t period = period_of(t);
    try {
      queue_.insert(t, next_period(when, period, now), period, [=] { return now; });
      t.refs.fetch_add(1, std::memory_order_relaxed);
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

  void drive() noexcept {
    this_thread.drives_engine = true;
    while (!stopping_.load(std::memory_order_acquire)) {
      wakeups_.fetch_add(1, std::memory_order_relaxed);
      const std::int64_t now = host_.now();
      run_due(now);
      std::int64_t until = 0;
      {
        std::lock_guard held(lock_);
        until = queue_.next();
        if (until == 0) until = INT64_MAX;
        sleeps_until_ = until;
        ++sleep_;
      }
      if (until == INT64_MAX) {
        note_.wait();
      } else {
        note_.wait_until(until);
      }
      std::lock_guard held(lock_);
      sleeps_until_ = 0;
    }
  }

  engine_host& host_;
  mutable short_lock lock_;
  Queue queue_;
  std::int64_t sleeps_until_{0};
  std::uint64_t sleep_{0};

  std::atomic<std::uint64_t> noted_{0};
  note note_;
  std::mutex thread_lock_;
  std::thread thread_;
  bool drained_{false};  ///< guarded by thread_lock_
  std::atomic<bool> started_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> wakeups_{0};
};

}  // namespace verge::detail
