// SPDX-License-Identifier: Apache-2.0

// How a live scheduler begins, and the small things that tasks and engines ask of it.

#include <sched/live_scheduler.h>

#include <utility>

#include <base/probes.h>
#include <base/this_thread.h>
#include <base/xorshift.h>
#include <clock/fast_clock.h>
#include <clock/true_clock.h>
#include <engine/clockwork.h>
#include <sched/living_schedulers.h>

namespace verge::detail {

live_scheduler::live_scheduler(unsigned processors, exception_handler handler,
                               poller::wait_method method, int realtime_priority)
    : handler_(std::move(handler)),
      shared_poller_(std::make_shared<poller>(method)),
      poller_(*shared_poller_),
      all_(processors),
      realtime_(realtime_priority) {}

void live_scheduler::start(clockwork& timers) {
  timers_ = &timers;
  engine_ = &timers.its_engine();
  scheduler_begins(*this);
  set_processors(processors());
  learn_from_sleep(0);
  const auto wake_monitor = [](void* m) noexcept { static_cast<monitor*>(m)->wake(); };
  timers.on_growth(wake_monitor, &monitor_);
  engine_->on_growth(wake_monitor, &monitor_);
  monitor_.start(*this, thread_name("monitor"));
}

bool live_scheduler::runs_here() const noexcept {
  const worker* const w = this_thread.as_worker;
  return w != nullptr && &w->home == this;
}

std::int64_t live_scheduler::now() noexcept { return true_now(); }
std::int64_t live_scheduler::cheap_now() noexcept { return fast_clock::now(); }

std::uint64_t live_scheduler::random() noexcept {
  if (worker* w = worker_with_processor()) return w->held->random.next();
  thread_local xorshift own(reinterpret_cast<std::uintptr_t>(&own));
  return own.next();
}

/// Threads that hold no processor are assigned to one of them in turn, once and for good: a
/// thread's timers stay together, and two threads seldom meet at one lock.
unsigned live_scheduler::home_processor() noexcept {
  if (worker* w = worker_with_processor(); w != nullptr && !is_spare(*w->held)) return w->held->id;
  static std::atomic<unsigned> assigned{0};
  thread_local const unsigned mine = assigned.fetch_add(1, std::memory_order_relaxed);
  return mine % processors();
}

void live_scheduler::timer_fired(std::int64_t when, std::int64_t now) noexcept {
  if constexpr (!counting) return;
  if (worker* w = worker_with_processor()) {
    w->held->timers_fired.add();
    w->held->lateness.record(now - when);
  } else {
    foreign_.timer_fired(now - when);
  }
}

void live_scheduler::count_name(const timer_node& t) noexcept {
  if constexpr (!counting) return;
  const timer_behaviour* const does = t.does.load(std::memory_order_relaxed);
  if (worker* w = worker_with_processor()) {
    w->held->fired_by_name.add(does, 1);
  } else {
    foreign_.name_fired(does);
  }
}

/// Before they fire: a thread that sees what one has done finds it counted. Timers that are due
/// together are often of one name, and are counted together.
void live_scheduler::count_firings(processor& p, std::span<const firing> due,
                                   std::int64_t now) noexcept {
  if constexpr (!counting) return;
  const timer_behaviour* last = nullptr;
  std::uint64_t of_last = 0;
  for (const firing& f : due) {
    const timer_behaviour* const does = f.timer->does.load(std::memory_order_relaxed);
    if (does != last) {
      if (of_last != 0) p.fired_by_name.add(last, of_last);
      last = does;
      of_last = 0;
    }
    ++of_last;
    p.lateness.record(now - f.when);
  }
  p.fired_by_name.add(last, of_last);
  p.timers_fired.add(due.size());
}

/// What they make ready is collected and queued at once. Until then no other worker can take it:
/// that is the time of a batch, a few microseconds.
void live_scheduler::fire_all(std::span<const firing> due, std::int64_t now) noexcept {
  worker* const w = worker_with_processor();
  if (w == nullptr) return engine_host::fire_all(due, now);
  processor& p = *w->held;
  count_firings(p, due, now);
  ready_list found;
  {
    const onto_list collect(this, found);
    for (const firing& f : due) {
      VERGE_PROBE4(fire, f.timer, f.when, now, f.timer->does.load(std::memory_order_relaxed));
      if (traces()) [[unlikely]]
        trace_fired(*f.timer, f.when);
      fire(f, now);
    }
  }
  push_local(p, found);
}

void live_scheduler::job_started(job& j) {
  refuse_if_lost();
  jobs_.add(j);
}

void live_scheduler::job_ended(job& j) noexcept { jobs_.remove(j); }

void live_scheduler::unhandled(std::exception_ptr e) noexcept { handler_(std::move(e)); }

}  // namespace verge::detail
