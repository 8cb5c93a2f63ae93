// Two small schedulers, so that tasks and channels can be tested apart from the real one: `stepper`
// runs everything on the calling thread in a fixed order, `pool` on some threads in any.
//
// A program that includes this gets from it the functions that the real scheduler would provide.
#pragma once

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <verge/detail/random.h>
#include <verge/detail/scheduling.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace verge::test {

inline thread_local detail::scheduler* this_threads_scheduler = nullptr;
inline thread_local detail::job* this_threads_job = nullptr;
inline detail::scheduler* default_scheduler = nullptr;

/// What both have in common: the queue, the jobs that live, the exceptions that nobody took.
class scheduler_base : public detail::scheduler {
 public:
  void ready_last(detail::runnable& r) noexcept override { ready(r); }
  std::int64_t now() noexcept override { return 1; }

  void job_started(detail::job& j) override {
    std::lock_guard guard(jobs_lock_);
    live_.push_back(&j);
  }
  void job_ended(detail::job& j) noexcept override {
    std::lock_guard guard(jobs_lock_);
    std::erase(live_, &j);
  }
  void unhandled(std::exception_ptr e) noexcept override {
    std::lock_guard guard(jobs_lock_);
    unhandled_.push_back(std::move(e));
  }

  std::vector<detail::job*> live() {
    std::lock_guard guard(jobs_lock_);
    return live_;
  }
  std::vector<std::exception_ptr> take_unhandled() {
    std::lock_guard guard(jobs_lock_);
    return std::exchange(unhandled_, {});
  }

 protected:
  scheduler_base() : before_(std::exchange(default_scheduler, this)) {}
  ~scheduler_base() { default_scheduler = before_; }

  void abandon_all() {
    for (auto jobs = live(); !jobs.empty(); jobs = live()) jobs.front()->abandon(*jobs.front());
  }

 private:
  detail::scheduler* before_;
  std::mutex jobs_lock_;
  std::vector<detail::job*> live_;
  std::vector<std::exception_ptr> unhandled_;
};

/// Runs things on the thread that made it, one after the other, in run() and while that thread
/// waits. What is handed over runs next. When it goes, what is suspended is destroyed.
class stepper : public scheduler_base {
 public:
  explicit stepper(std::uint64_t seed = 1)
      : random_(seed), before_(std::exchange(this_threads_scheduler, this)) {}
  ~stepper() {
    queue_.clear();
    abandon_all();
    EXPECT_TRUE(take_unhandled().empty()) << "an exception that nobody took";
    this_threads_scheduler = before_;
  }

  /// Runs everything until nothing is ready.
  void run() {
    while (step()) {
    }
  }
  bool step() {
    if (queue_.empty()) return false;
    detail::runnable* r = queue_.front();
    queue_.pop_front();
    detail::job* const before = detail::current_job();
    r->run(*r);
    detail::set_current_job(before);
    return true;
  }

  void ready(detail::runnable& r) noexcept override { queue_.push_back(&r); }
  void ready_next(detail::runnable& r) noexcept override { queue_.push_front(&r); }
  std::uint64_t random() noexcept override { return random_.next(); }

  void block(detail::thread_waiter& w, const char* waiting_for) noexcept override {
    while (!w.woken()) {
      if (step()) continue;
      std::fprintf(stderr, "deadlock: the thread waits for: %s\n", waiting_for);
      std::abort();
    }
  }
  void unblock(detail::thread_waiter& w) noexcept override { w.wake_in_kernel(); }

 private:
  std::deque<detail::runnable*> queue_;
  detail::random_sequence random_;
  detail::scheduler* before_;
};

/// Runs things on n threads. When it goes, it first waits until nothing is ready and nothing runs;
/// what is suspended then is destroyed.
class pool : public scheduler_base {
 public:
  explicit pool(int n) {
    for (int i = 0; i < n; ++i) threads_.emplace_back([this] { work(); });
  }
  ~pool() {
    {
      std::unique_lock guard(lock_);
      quiet_.wait(guard, [&] { return queue_.empty() && busy_ == 0; });
      ending_ = true;
    }
    more_.notify_all();
    for (auto& t : threads_) t.join();
    abandon_all();
    EXPECT_TRUE(take_unhandled().empty()) << "an exception that nobody took";
  }

  void ready(detail::runnable& r) noexcept override {
    {
      std::lock_guard guard(lock_);
      if (ending_) return;
      queue_.push_back(&r);
    }
    more_.notify_one();
  }
  void ready_next(detail::runnable& r) noexcept override {
    {
      std::lock_guard guard(lock_);
      if (ending_) return;
      queue_.push_front(&r);
    }
    more_.notify_one();
  }
  std::uint64_t random() noexcept override {
    std::lock_guard guard(lock_);
    return random_.next();
  }
  void block(detail::thread_waiter& w, const char*) noexcept override { w.wait_in_kernel(); }
  void unblock(detail::thread_waiter& w) noexcept override { w.wake_in_kernel(); }

 private:
  void work() {
    this_threads_scheduler = this;
    std::unique_lock guard(lock_);
    for (;;) {
      more_.wait(guard, [&] { return ending_ || !queue_.empty(); });
      if (queue_.empty()) return;
      detail::runnable* r = queue_.front();
      queue_.pop_front();
      ++busy_;
      guard.unlock();
      r->run(*r);
      guard.lock();
      if (--busy_ == 0 && queue_.empty()) quiet_.notify_all();
    }
  }

  std::mutex lock_;
  std::condition_variable more_;
  std::condition_variable quiet_;
  std::deque<detail::runnable*> queue_;
  int busy_{0};
  bool ending_{false};
  detail::random_sequence random_{1};
  std::vector<std::thread> threads_;
};

}  // namespace verge::test

namespace verge::detail {

scheduler* current_scheduler() noexcept { return test::this_threads_scheduler; }
scheduler& scheduler_or_default() {
  if (test::this_threads_scheduler != nullptr) return *test::this_threads_scheduler;
  if (test::default_scheduler == nullptr) std::abort();
  return *test::default_scheduler;
}
job* current_job() noexcept { return test::this_threads_job; }
void set_current_job(job* j) noexcept { test::this_threads_job = j; }

void thread_waiter::wait(const char* waiting_for) noexcept {
  if (scheduler_ != nullptr) {
    scheduler_->block(*this, waiting_for);
  } else {
    wait_in_kernel();
  }
}
void thread_waiter::wait_in_kernel() noexcept {
  while (!woken()) ::syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr, 0);
}
void thread_waiter::wake_in_kernel() noexcept {
  word_.store(1, std::memory_order_release);
  ::syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}
void thread_waiter::wake_thread(waiter& w) noexcept {
  auto& self = static_cast<thread_waiter&>(w);
  if (self.scheduler_ != nullptr) {
    self.scheduler_->unblock(self);
  } else {
    self.wake_in_kernel();
  }
}

}  // namespace verge::detail
