// SPDX-License-Identifier: Apache-2.0
// A host and a scheduler for one engine and nothing else: what fires runs at once, and no thread
// sleeps or waits. For benchmarks and tests of an engine alone, which set the clock and the
// processor.
#pragma once

#include <cstdint>
#include <exception>

#include <base/this_thread.h>
#include <engine/clockwork.h>
#include <engine/engine.h>
#include <engine/make_engine.h>
#include <sched/living_schedulers.h>
#include <sched/runtime_core.h>

namespace verge::bench {

class [[gnu::visibility("hidden")]] bare_host : public detail::scheduler,
                                                public detail::engine_host {
 public:
  /// The derived class calls engine().grow(): from then on the engine can ask it for the time.
  /// `real_time`: the time is that of the machine's clock, and nothing is added to it.
  explicit bare_host(verge::engine which, bool real_time = false)
      : simulated_(!real_time),
        timers_(new detail::clockwork(detail::make_engine(which, *this), *this, *this)) {}
  bare_host(const bare_host&) = delete;
  bare_host& operator=(const bare_host&) = delete;

  detail::timer_engine& engine() { return timers_->its_engine(); }

  detail::clockwork& timers() noexcept override { return *timers_; }
  bool simulated() const noexcept override { return simulated_; }
  void wake_net_poller(std::int64_t) noexcept override {}
  void ready(detail::runnable & r) noexcept override { detail::run_ready(r); }
  void ready_next(detail::runnable & r) noexcept override { detail::run_ready(r); }
  void ready_last(detail::runnable & r) noexcept override { detail::run_ready(r); }
  std::uint64_t random() noexcept override { return 4; }
  void block(detail::thread_waiter&, const char*) noexcept override {}
  void unblock(detail::thread_waiter&) noexcept override {}
  void enter_blocking() noexcept override {}
  void leave_blocking() noexcept override {}
  void job_started(detail::job&) override {}
  void job_ended(detail::job&) noexcept override {}
  void unhandled(std::exception_ptr) noexcept override {}

 protected:
  ~bare_host() = default;
  /// Called by the destructor of the derived class, while the engine can still ask it.
  void end() noexcept {
    engine().drain();
    timers_->end(&detail::close_channel_of);
  }

 private:
  const bool simulated_;
  detail::clockwork* timers_;  // ends itself
};

}  // namespace verge::bench
