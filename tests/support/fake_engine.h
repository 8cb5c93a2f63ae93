// SPDX-License-Identifier: Apache-2.0
// The scheduler on an engine controlled by the test: the test sets when the first timer of each
// processor is due, and whether the scheduler is told. So a wake-up can be lost, which does not
// happen with a real engine.
//
//   fake_clockwork fake(2);                        // processors
//   fake.engine().set(1, when);                    // due then; the scheduler is not told
//   fake.scheduler().wake_net_poller(when);        // now it is
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include <clock/true_clock.h>
#include <engine/clockwork.h>
#include <engine/engine.h>
#include <sched/live_scheduler.h>
#include <sched/runtime_core.h>

namespace verge::test {

class fake_engine : public detail::timer_engine {
 public:
  static constexpr unsigned most_processors = 8;

  /// From now on the first timer of processor p is due at `when`.
  void set(unsigned p, std::int64_t when) noexcept { next_[p] = when; }
  /// How many were run.
  int ran() const noexcept { return ran_; }

  detail::timer_check check_timers(unsigned p, std::int64_t now, bool) noexcept override {
    std::int64_t next = next_[p];
    if (now == 0) now = detail::true_now();
    if (next == 0 || next > now) return {.now = now, .next = next, .ran = 0};
    if (!next_[p].compare_exchange_strong(next, 0)) return {.now = now, .next = 0, .ran = 0};
    ++ran_;
    return {.now = now, .next = 0, .ran = 1};
  }
  std::int64_t next_when(unsigned p) const noexcept override { return next_[p]; }
  std::int64_t next_exactly(unsigned p) noexcept override { return next_[p]; }

  // It has no timers, only times.
  detail::node_layout layout() const noexcept override {
    return detail::node_layout::of<detail::timer_node>();
  }
  detail::timer_node* construct(void* memory) noexcept override {
    return ::new (memory) detail::timer_node;
  }
  void start(detail::timer_node&, std::int64_t, std::int64_t) override { std::terminate(); }
  bool stop(detail::timer_node&) noexcept override { std::terminate(); }
  bool reset(detail::timer_node&, std::int64_t, std::int64_t) override { std::terminate(); }
  void grow(unsigned) override {}
  void move_timers(unsigned, unsigned) noexcept override {}
  void drain() noexcept override {}
  detail::timer_counts counts(unsigned) const noexcept override { return {}; }
  std::size_t bytes() const noexcept override { return sizeof *this; }
  std::string verify() const override { return {}; }

 private:
  std::array<std::atomic<std::int64_t>, most_processors> next_{};
  std::atomic<int> ran_{0};
};

template <class Engine>
class [[gnu::visibility("hidden")]] clockwork_on {
 public:
  explicit clockwork_on(unsigned processors, std::function<void(std::exception_ptr)> on_exception =
                                                 &detail::print_and_terminate)
      : scheduler_(processors, std::move(on_exception), detail::poller::wait_method::automatic),
        timers_(*new detail::clockwork(std::make_unique<Engine>(), scheduler_, scheduler_)) {
    scheduler_.start(timers_);
  }
  ~clockwork_on() {
    scheduler_.stop();
    detail::end_timers_and_tasks(scheduler_, timers_);
  }
  clockwork_on(const clockwork_on&) = delete;
  clockwork_on& operator=(const clockwork_on&) = delete;

  detail::live_scheduler& scheduler() noexcept { return scheduler_; }
  detail::clockwork& timers() noexcept { return timers_; }
  Engine& engine() noexcept { return static_cast<Engine&>(timers_.its_engine()); }

 private:
  detail::live_scheduler scheduler_;
  detail::clockwork& timers_;  ///< ends itself
};

using fake_clockwork = clockwork_on<fake_engine>;

}  // namespace verge::test
