// SPDX-License-Identifier: Apache-2.0

// How a live scheduler ends: stop(), which waits for its threads, and halt(), for a program that
// exits, which leaves them where they are.

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>

#include <base/fence.h>
#include <base/this_thread.h>
#include <clock/true_clock.h>
#include <sched/live_scheduler.h>
#include <sched/living_schedulers.h>
#include <verge/detail/lock.h>

namespace verge::detail {

namespace {

/// How long the end of a program waits for callbacks and tasks that are running.
constexpr std::int64_t halt_patience = 1'000'000'000;

}  // namespace

live_scheduler::~live_scheduler() {
  stop();
  scheduler_ends(*this);
}

void live_scheduler::stop() noexcept {
  {
    std::lock_guard held(lock_);
    if (stopping_.exchange(true)) return;
  }
  monitor_.wake();
  monitor_.join();
  stalls_.end();
  // No new worker starts from here on: start_worker looks at stopping_ under the lock. A worker
  // that still runs may read the one that ran its task before (set_current_job), and join() looks
  // for a task in all of them: none is destroyed before all threads have ended.
  for (std::size_t i = 0;; ++i) {
    poller_.break_poll();
    worker* w = nullptr;
    {
      std::lock_guard held(lock_);
      idle_.dismiss_workers_locked();
      if (i == workers_.size()) {
        ended_ = true;
        break;
      }
      w = workers_[i].get();
    }
    if (w->thread.get_id() == std::this_thread::get_id()) {
      // A task ends the runtime, or the program: its thread returns here later, or never.
      w->thread.detach();
      std::lock_guard held(lock_);
      ended_by_ = std::move(workers_[i]);
      workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(i--));
    } else {
      w->thread.join();
    }
  }
  std::vector<std::unique_ptr<worker>> ended;
  {
    std::lock_guard held(lock_);
    ended.swap(workers_);
  }
  ended.clear();
  // No worker polls any more: threads, and tasks of other runtimes, that wait for a descriptor of
  // this one are told. Without the lock, because that wakes them.
  poller_.end();
}

void live_scheduler::halt() noexcept {
  {
    std::lock_guard held(lock_);
    if (stopping_.exchange(true)) return;
    idle_.dismiss_workers_locked();
  }
  monitor_.wake();
  halted_by_.store(this_thread.as_worker, std::memory_order_relaxed);
  halted_.store(true, std::memory_order_relaxed);
  // A worker that is seen to wait from here on sees halted_ when its wait ends.
  full_fence();
  const std::int64_t end = true_now() + halt_patience;
  while (any_worker_runs() && true_now() < end) {
    poller_.break_poll();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  monitor_.join();
  // Threads that have ended are joined without the lock, and for a limited time, because they may
  // have thread_local objects of the user's to destroy.
  timespec limit{};
  ::clock_gettime(CLOCK_REALTIME, &limit);
  ++limit.tv_sec;
  for (std::size_t i = 0;; ++i) {
    std::thread::native_handle_type thread{};
    {
      std::lock_guard held(lock_);
      if (i >= workers_.size()) break;
      worker& w = *workers_[i];
      if (!w.ended.load(std::memory_order_acquire)) {
        w.thread.detach();
        continue;
      }
      thread = w.thread.native_handle();
    }
    if (::pthread_timedjoin_np(thread, nullptr, &limit) != 0) ::pthread_detach(thread);
  }
}

/// Whether a worker other than the calling one runs something.
bool live_scheduler::any_worker_runs() const noexcept {
  std::lock_guard held(lock_);
  return std::ranges::any_of(workers_, [](const std::unique_ptr<worker>& w) {
    return w.get() != this_thread.as_worker && !w->ended.load(std::memory_order_acquire) &&
           !w->waits.load(std::memory_order_acquire);
  });
}

/// For a worker whose wait has ended. The fence pairs with the one in halt().
void live_scheduler::wait_forever_if_halted(worker& w) noexcept {
  full_fence();
  if (!halted_.load(std::memory_order_relaxed) ||
      &w == halted_by_.load(std::memory_order_relaxed)) {
    return;
  }
  w.waits.store(true, std::memory_order_release);
  for (;;) ::pause();
}

void live_scheduler::wait_until_left(const job& j) const noexcept {
  const auto is_inside = [&](const std::unique_ptr<worker>& w) {
    return w.get() != this_thread.as_worker && w->inside.load(std::memory_order_acquire) == &j;
  };
  for (backoff patience;; patience.wait()) {
    std::lock_guard held(lock_);
    if (std::ranges::none_of(workers_, is_inside)) return;
  }
}

runnable* live_scheduler::take_leftover() noexcept {
  runnable* found = nullptr;
  all_.for_each([&](processor& p) {
    if (found == nullptr) found = p.queue.take_next();
    if (found == nullptr) found = p.queue.take();
  });
  return found != nullptr ? found : global_.pop_locked();
}

void live_scheduler::abandon_jobs() noexcept {
  jobs_.abandon_all(runs_here() ? current_job() : nullptr);  // but the one that ends the runtime
  wait_for_visitors();
}

}  // namespace verge::detail
