// SPDX-License-Identifier: Apache-2.0
// A scheduler that runs everything on the thread that created it, in the order in which it became
// ready, so that a test can check the state after each step.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <utility>
#include <vector>

#include <base/this_thread.h>
#include <sched/living_schedulers.h>
#include <verge/detail/random.h>
#include <verge/detail/scheduling.h>

namespace verge::test {

/// Tasks run in run(), and while the thread waits. What is handed over runs next. The destructor
/// destroys what is suspended and checks that no exception is left.
class stepper final : public detail::scheduler {
 public:
  explicit stepper(std::uint64_t seed = 1)
      : random_(seed), before_(std::exchange(detail::this_thread.current, this)) {}
  ~stepper() {
    queue_.clear();
    while (!live_.empty()) live_.front()->abandon(*live_.front());
    EXPECT_TRUE(unhandled_.empty()) << "an unhandled exception";
    detail::this_thread.current = before_;
  }

  /// Runs everything until nothing is ready.
  void run() {
    while (step()) {
    }
  }

  /// The jobs that have begun and not ended, in the order they began.
  const std::vector<detail::job*>& live() const { return live_; }
  std::vector<std::exception_ptr> take_unhandled() { return std::exchange(unhandled_, {}); }

  void ready(detail::runnable& r) noexcept override { queue_.push_back(&r); }
  void ready_next(detail::runnable& r) noexcept override { queue_.push_front(&r); }
  void ready_last(detail::runnable& r) noexcept override { queue_.push_back(&r); }
  std::int64_t now() noexcept override { return 1; }
  std::uint64_t random() noexcept override { return random_.next(); }

  void block(detail::thread_waiter& w, const char* waiting_for) noexcept override {
    while (!w.woken()) {
      if (step()) continue;
      std::fprintf(stderr, "deadlock: the test's thread waits for: %s\n", waiting_for);
      std::abort();
    }
  }
  void unblock(detail::thread_waiter& w) noexcept override { w.wake_in_kernel(); }
  void enter_blocking() noexcept override {}
  void leave_blocking() noexcept override {}
  detail::clockwork& timers() noexcept override {
    std::fprintf(stderr, "a stepper has no timers: use verge::simulation\n");
    std::abort();
  }

  void job_started(detail::job& j) override { live_.push_back(&j); }
  void job_ended(detail::job& j) noexcept override { std::erase(live_, &j); }
  void unhandled(std::exception_ptr e) noexcept override { unhandled_.push_back(std::move(e)); }

 private:
  bool step() {
    if (queue_.empty()) return false;
    detail::runnable* r = queue_.front();
    queue_.pop_front();
    detail::job* const before = detail::current_job();  // of one that blocks, further down
    detail::run_ready(*r);
    detail::set_current_job(before);
    return true;
  }

  std::deque<detail::runnable*> queue_;
  std::vector<detail::job*> live_;
  std::vector<std::exception_ptr> unhandled_;
  detail::random_sequence random_;
  detail::scheduler* before_;
};

}  // namespace verge::test
