// SPDX-License-Identifier: Apache-2.0

// The runtime that users hold, the default one, and what happens to them at a fork and at exit.

#include <verge/runtime.h>

#include <pthread.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include <base/log.h>
#include <base/this_thread.h>
#include <clock/simulated_time.h>
#include <engine/make_engine.h>
#include <sched/cpu_limits.h>
#include <sched/living_schedulers.h>
#include <sched/runtime_core.h>
#include <sched/waiting_threads.h>

namespace verge {

namespace detail {

void print_and_terminate(const std::exception_ptr& e) {
  try {
    std::rethrow_exception(e);
  } catch (const std::exception& what) {
    log(log_level::fatal, "an exception of a task or callback was not caught: %s", what.what());
  } catch (...) {
    log(log_level::fatal, "an exception of a task or callback was not caught");
  }
  std::terminate();
}

namespace {

processor_choice wanted_processors(unsigned n, const processor_limits& limits) noexcept {
  if (n != 0) return {.number = n, .from = processors_from::option};
  return choose_processors(limits, live_scheduler::max_processors);
}

/// All runtimes, and the default one. Never destroyed: threads may outlive static objects.
struct registry {
  std::mutex lock;
  runtime_core* first{nullptr};
  std::atomic<runtime*> standard{nullptr};
  /// The program is ending, by this thread.
  bool exiting{false};
  std::thread::id exiting_thread;
  /// What was the default one until then. Kept: other threads run on until the very end.
  runtime* halted{nullptr};
  /// Runtimes that were ended by a task of their own, until its worker has left them.
  std::shared_ptr<runtime_core> unreturned;

  /// How the default one is made. Guarded by the lock.
  std::optional<runtime_options> options;

  runtime_options chosen() {
    std::lock_guard held(lock);
    return options ? *options : runtime_options{};
  }

  void clear_up() noexcept {
    std::shared_ptr<runtime_core> left = take_returned();
    while (left != nullptr) {
      const std::shared_ptr<runtime_core> core = std::exchange(left, left->next_unreturned);
      core->next_unreturned = nullptr;
      end_tasks(core->scheduler);  // the task that ended it, if it waits, and what that has started
      core->timers->let_go();
    }
  }

  static registry& get() {
    static registry& all = *[] {
      auto r = std::make_unique<registry>();
      if (::pthread_atfork(&before_fork, &after_fork, &in_child) != 0) throw std::bad_alloc();
      return r.release();
    }();
    return all;
  }

 private:
  std::shared_ptr<runtime_core> take_returned() noexcept {
    std::shared_ptr<runtime_core> found;
    std::lock_guard held(lock);
    for (std::shared_ptr<runtime_core>* link = &unreturned; *link != nullptr;) {
      if (!(*link)->scheduler.returned()) {
        link = &(*link)->next_unreturned;
        continue;
      }
      std::shared_ptr<runtime_core> one = std::move(*link);
      *link = std::move(one->next_unreturned);
      one->next_unreturned = std::move(found);
      found = std::move(one);
    }
    return found;
  }

  // The lists must be whole in the child, and the locks free.
  static void before_fork() {
    get().lock.lock();
    clockwork::lock_of_all().lock();
    lock_of_schedulers().lock();
  }
  static void after_fork() {
    lock_of_schedulers().unlock();
    clockwork::lock_of_all().unlock();
    get().lock.unlock();
  }
  static void in_child() {
    registry& all = get();
    for (runtime_core* c = all.first; c != nullptr; c = c->next) {
      c->timers->lost_in_fork();
      c->scheduler.net()->lost_in_fork();
    }
    for (runtime_core* c = all.unreturned.get(); c != nullptr; c = c->next_unreturned.get()) {
      c->timers->lost_in_fork();
    }
    // Leaked, as are all others: they refer to themselves from now on.
    if (runtime_core* const c = all.unreturned.get()) c->itself = std::move(all.unreturned);
    all.first = nullptr;
    all.standard.store(nullptr, std::memory_order_relaxed);  // leaked: its threads do not exist
    all.halted = nullptr;
    all.exiting = false;
    leave_in_child();
    thread_probe::lost_in_fork();
    forget_waiting_threads_in_child();
    after_fork();
  }
};

/// Nothing is destroyed: other threads may be using timers, this may be a task, and a callback that
/// runs may never end. What matters is that no user code runs while static objects are destroyed.
void halt_default_runtime() {
  registry& all = registry::get();
  {
    std::lock_guard held(all.lock);
    if (all.exiting) return;  // registered twice, by a process and its child
    all.exiting = true;
    all.exiting_thread = std::this_thread::get_id();
    all.halted = all.standard.exchange(nullptr, std::memory_order_acq_rel);
    if (all.halted == nullptr) return;
  }
  auto& s = static_cast<live_scheduler&>(scheduler_of(*all.halted));
  s.halt();
  s.timers().halt();
}

}  // namespace

runtime_core::runtime_core(runtime_options& options)
    : limits(options.processors != 0 ? processor_limits{} : read_processor_limits()),
      taken_from(wanted_processors(options.processors, limits).from),
      scheduler(wanted_processors(options.processors, limits).number,
                options.on_exception ? std::move(options.on_exception) : print_and_terminate,
                poller::wait_method::automatic, options.realtime),
      timers(new clockwork(make_engine(options.engine, scheduler, options.wheel), scheduler,
                           scheduler)) {
  if (options.coalesce) timers->coalesce();
  scheduler.set_name(std::move(options.name));
  scheduler.watch_stalls(options.stall_after.count(), std::move(options.on_stall));
  try {
    registry::get();  // made by the first runtime, which takes memory
    scheduler.start(*timers);
  } catch (...) {
    scheduler.stop();
    timers->end(&close_channel_of);
    throw;
  }
  registry& all = registry::get();
  all.clear_up();
  std::lock_guard held(all.lock);
  next = all.first;
  if (next != nullptr) next->previous = this;
  all.first = this;
}

runtime_core& runtime_core::make(runtime_options& options) {
  auto core = std::make_shared<runtime_core>(options);
  core->itself = core;
  return *core;
}

void runtime_core::end() noexcept {
  registry& all = registry::get();
  bool exiting = false;
  {
    std::lock_guard held(all.lock);
    exiting = all.exiting;
    if (!exiting) {
      (previous == nullptr ? all.first : previous->next) = next;
      if (next != nullptr) next->previous = previous;
    }
  }
  if (exiting) {
    // What it runs may wait for what was halted, and never end: everything stays as it is.
    scheduler.halt();
    timers->halt();
    return;
  }
  // A task of its own ends it: its thread returns to the scheduler, and ends there.
  const bool from_inside = scheduler.runs_here();
  const std::shared_ptr<runtime_core> keep = std::move(itself);
  timers->close();
  {
    // A task of another runtime ends it, and waits until all threads have ended.
    auto* const other = from_inside ? nullptr : current_scheduler();
    if (other != nullptr) other->enter_blocking();
    scheduler.stop();
    if (other != nullptr) other->leave_blocking();
  }
  if (from_inside) {
    std::lock_guard held(all.lock);
    next_unreturned = std::move(all.unreturned);
    all.unreturned = keep;
  }
  end_timers_and_tasks(scheduler, *timers, keep, from_inside);
  all.clear_up();
}

scheduler& scheduler_or_default() {
  if (scheduler* s = current_scheduler()) return *s;
  return scheduler_of(default_runtime());
}

scheduler& scheduler_of(runtime& rt) noexcept { return rt.core_->scheduler; }

}  // namespace detail

runtime::runtime(runtime_options options) : core_(&detail::runtime_core::make(options)) {}

runtime::~runtime() {
  // In the child of a fork there are no threads to wait for, and locks may be held forever.
  if (!core_->scheduler.lost()) core_->end();
}

void runtime::set_processors(unsigned n) {
  core_->scheduler.set_processors(n);
  core_->taken_from.store(processors_from::option, std::memory_order_relaxed);
}
unsigned runtime::processors() const noexcept { return core_->scheduler.processors(); }

detail::scheduler& runtime::scheduler_to_wait_for() {
  if (detail::simulated_time != nullptr) {
    throw std::logic_error(
        "verge: run() of a runtime on a thread that takes part in a simulation, where time would "
        "not wait for it; call it on a thread that takes no part, or use simulation::run()");
  }
  return core_->scheduler;
}

void set_default_runtime_options(runtime_options options) {
  detail::registry& all = detail::registry::get();
  std::lock_guard held(all.lock);
  if (all.standard.load(std::memory_order_acquire) != nullptr || all.halted != nullptr) {
    throw std::logic_error(
        "verge: the default runtime has been made: set its options before the first timer or "
        "task, or make a runtime of your own");
  }
  all.options = std::move(options);
}

runtime& default_runtime() {
  detail::registry& all = detail::registry::get();
  if (runtime* r = all.standard.load(std::memory_order_acquire)) return *r;
  // Made outside of the lock, which making a runtime takes; of two, one is destroyed.
  {
    std::lock_guard held(all.lock);
    if (all.halted != nullptr && all.exiting_thread != std::this_thread::get_id()) {
      return *all.halted;
    }
    if (all.exiting) {
      throw std::logic_error(
          "verge: the default runtime has ended, for the program is exiting; start no timers or "
          "tasks from destructors of static objects");
    }
  }
  auto made = std::make_unique<runtime>(all.chosen());
  // May be registered several times: by threads that race, and again by the child of a fork.
  if (std::atexit(&detail::halt_default_runtime) != 0) throw std::bad_alloc();
  runtime* expected = nullptr;
  if (all.standard.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel)) {
    return *made.release();
  }
  return *expected;
}

}  // namespace verge
