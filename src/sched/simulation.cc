// SPDX-License-Identifier: Apache-2.0

#include <verge/simulation.h>
#include <verge/time.h>

#include <pthread.h>

#include <cstdlib>
#include <thread>

#include <base/log.h>
#include <base/this_thread.h>
#include <engine/clockwork.h>
#include <engine/make_engine.h>
#include <sched/living_schedulers.h>
#include <sched/runtime_core.h>
#include <sched/simulated_scheduler.h>
#include <timer/callback.h>

namespace verge {

void detail::throw_deadlock() {
  throw deadlock(static_cast<simulated_scheduler*>(current_scheduler())->report_of_deadlock());
}

class simulation::implementation {
 public:
  explicit implementation(simulation_options& options)
      : scheduler(
            options.seed, options.start.time_since_epoch().count(),
            options.on_exception ? std::move(options.on_exception) : detail::print_and_terminate),
        timers(new detail::clockwork(detail::make_engine(options.engine, scheduler, options.wheel),
                                     scheduler, scheduler)) {
    static const int once = ::pthread_atfork(nullptr, nullptr, &detail::leave_in_child);
    static_cast<void>(once);
    scheduler.start(*timers);
    scheduler.enter();
  }
  ~implementation() {
    if (std::this_thread::get_id() != maker) {
      detail::log(log_level::fatal,
                  "a simulation is ended on another thread than the one that made it, which would "
                  "take part in it forever; end it there");
      std::abort();
    }
    scheduler.leave();
    scheduler.stop();
    detail::end_timers_and_tasks(scheduler, *timers);
  }
  implementation(const implementation&) = delete;
  implementation& operator=(const implementation&) = delete;

  const std::thread::id maker{std::this_thread::get_id()};
  detail::simulated_scheduler scheduler;
  detail::clockwork* timers;
};

simulation::simulation(simulation_options options) {
  if (options.start.time_since_epoch().count() <= 0) {
    throw std::invalid_argument("verge: a simulation starts at a positive time");
  }
  if (detail::current_scheduler() != nullptr) {
    throw std::logic_error(
        "verge: this thread belongs to a runtime or a simulation already; make the simulation on a "
        "thread of the program, and end one before making the next");
  }
  it_ = std::make_unique<implementation>(options);
  const std::int64_t last = it_->timers->its_engine().last_time();
  if (it_->scheduler.now() > last) {
    throw std::invalid_argument("verge: with engine " + std::string(name_of(options.engine)) +
                                " a simulation starts within the first " + detail::in_years(last) +
                                " of the clock; start it earlier, or choose another engine");
  }
}

simulation::~simulation() {
  // In the child of a fork there are no threads to wait for, and locks may be held forever.
  if (it_->scheduler.lost()) static_cast<void>(it_.release());
}

detail::scheduler& simulation::scheduler_here() {
  it_->scheduler.refuse_if_lost();
  if (detail::current_scheduler() != &it_->scheduler) {
    throw std::logic_error(
        "verge: this thread takes no part in the simulation; call run() and run_for() on the "
        "thread that made it, or let this one in first with a simulation::participant");
  }
  return it_->scheduler;
}

void simulation::run_until(const std::function<bool()>& done) {
  if (!it_->scheduler.run_until(done)) throw deadlock(it_->scheduler.report());
}

void simulation::run_for_nanoseconds(std::int64_t d) {
  scheduler_here();
  if (!it_->scheduler.run_for(d)) throw deadlock(it_->scheduler.report());
}

clock::time_point simulation::now() noexcept {
  return clock::time_point(clock::duration(it_->scheduler.now()));
}
std::uint64_t simulation::jumps() const noexcept { return it_->scheduler.jumps(); }
std::uint64_t simulation::seed() const noexcept { return it_->scheduler.seed(); }
detail::scheduler& detail::scheduler_of(simulation& sim) noexcept { return sim.it_->scheduler; }

simulation::participant::participant(simulation& sim) : sim_(sim) {
  sim_.it_->scheduler.refuse_if_lost();
  if (detail::current_scheduler() != nullptr) {
    throw std::logic_error("verge: this thread takes part in a simulation or runtime already");
  }
  sim_.it_->scheduler.join_in();
}
simulation::participant::~participant() {
  if (!sim_.it_->scheduler.lost()) sim_.it_->scheduler.drop_out();
}

}  // namespace verge
