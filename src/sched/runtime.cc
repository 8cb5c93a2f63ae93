// The runtime that users hold, the default one, and what becomes of them at a fork and at exit.

#include <verge/runtime.h>

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include <clock/simulated_time.h>
#include <sched/runtime_core.h>
#include <sched/this_thread.h>

namespace verge {

namespace detail {

void print_and_terminate(const std::exception_ptr& e) {
  try {
    std::rethrow_exception(e);
  } catch (const std::exception& what) {
    std::fprintf(stderr, "verge: nobody caught an exception of a task or callback: %s\n",
                 what.what());
  } catch (...) {
    std::fprintf(stderr, "verge: nobody caught an exception of a task or callback\n");
  }
  std::terminate();
}

namespace {

unsigned wanted_processors(unsigned n) noexcept {
  if (n != 0) return n;
  return std::clamp(std::thread::hardware_concurrency(), 1U, live_scheduler::max_processors);
}

/// All runtimes, and the default one. Never destroyed: threads may outlive static objects.
struct registry {
  std::mutex lock;
  runtime_core* first{nullptr};
  std::atomic<runtime*> standard{nullptr};
  /// The program is ending, by this thread.
  bool exiting{false};
  std::thread::id exiting_thread;
  /// What was the default one until then. Kept: other threads go on until the very end.
  runtime* halted{nullptr};
  /// Runtimes that were ended by a task of their own, until its worker has left them.
  std::vector<std::shared_ptr<runtime_core>> unreturned;

  void clear_up() noexcept {
    std::vector<std::shared_ptr<runtime_core>> gone;
    {
      std::lock_guard held(lock);
      const auto first_gone = std::ranges::partition(
          unreturned, [](const auto& core) { return !core->scheduler.returned(); });
      gone.assign(first_gone.begin(), first_gone.end());
      unreturned.erase(first_gone.begin(), first_gone.end());
    }
    for (const auto& core : gone) {
      end_tasks(core->scheduler);  // the task that ended it, if it waits, and what that has started
      core->timers->let_go();
    }
  }

  static registry& get() {
    static registry& all = *[] {
      auto* r = new registry;
      ::pthread_atfork(&before_fork, &after_fork, &in_child);
      return r;
    }();
    return all;
  }

 private:
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
    for (const auto& core : all.unreturned) core->timers->lost_in_fork();
    static_cast<void>(new std::vector(std::move(all.unreturned)));
    all.first = nullptr;
    all.standard.store(nullptr, std::memory_order_relaxed);  // leaked: its threads are gone
    all.halted = nullptr;
    all.exiting = false;
    leave_in_child();
    after_fork();
  }
};

/// Nothing is destroyed: other threads may be using timers, this may be a task, and a callback that
/// runs may never end. What matters is that nothing of the user's runs while static objects go.
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
  auto& s = static_cast<live_scheduler&>(all.halted->scheduler());
  s.halt();
  s.timers().halt();
}

}  // namespace

runtime_core::runtime_core(runtime_options& options)
    : scheduler(wanted_processors(options.processors),
                options.on_exception ? std::move(options.on_exception) : print_and_terminate,
                poller::wait_method::automatic),
      timers(new clockwork(make_engine(options.engine, scheduler, options.wheel), scheduler,
                           scheduler)) {
  try {
    scheduler.start(*timers);
  } catch (...) {
    scheduler.stop();
    timers->end();
    throw;
  }
  registry& all = registry::get();
  all.clear_up();
  std::lock_guard held(all.lock);
  next = all.first;
  if (next != nullptr) next->previous = this;
  all.first = this;
}

void runtime_core::end(std::unique_ptr<runtime_core> core) noexcept {
  registry& all = registry::get();
  runtime_core& self = *core;
  {
    std::lock_guard held(all.lock);
    if (all.exiting) {
      // What it runs may be waiting for what has been halted, and never end.
      static_cast<void>(core.release());
    } else {
      (self.previous == nullptr ? all.first : self.previous->next) = self.next;
      if (self.next != nullptr) self.next->previous = self.previous;
    }
  }
  if (core == nullptr) {
    self.scheduler.halt();
    self.timers->halt();
    return;
  }
  // A task of its own ends it: its thread comes back to the scheduler, and leaves from there.
  const bool from_inside = self.scheduler.runs_here();
  const std::shared_ptr<runtime_core> keep(std::move(core));
  self.timers->close();
  {
    // A task of another runtime ends it, and waits until all threads have ended.
    auto* const other = from_inside ? nullptr : current_scheduler();
    if (other != nullptr) other->enter_blocking();
    self.scheduler.stop();
    if (other != nullptr) other->leave_blocking();
  }
  if (from_inside) {
    std::lock_guard held(all.lock);
    all.unreturned.push_back(keep);
  }
  end_timers_and_tasks(self.scheduler, *self.timers, keep, from_inside);
  all.clear_up();
}

scheduler& scheduler_or_default() {
  if (scheduler* s = current_scheduler()) return *s;
  return default_runtime().scheduler();
}

}  // namespace detail

runtime::runtime(runtime_options options)
    : core_(std::make_unique<detail::runtime_core>(options)) {}

runtime::~runtime() {
  if (core_->timers->forked()) {
    // There are no threads to wait for, and locks may be held for ever.
    static_cast<void>(core_.release());
  } else {
    detail::runtime_core::end(std::move(core_));
  }
}

void runtime::set_processors(unsigned n) { core_->scheduler.set_processors(n); }
unsigned runtime::processors() const noexcept { return core_->scheduler.processors(); }
detail::scheduler& runtime::scheduler() noexcept { return core_->scheduler; }

detail::scheduler& runtime::scheduler_to_wait_for() {
  if (detail::simulated_time != nullptr) {
    throw std::logic_error(
        "verge: run() of a runtime on a thread that takes part in a simulation, where time would "
        "not wait for it; call it on a thread that takes no part, or use simulation::run()");
  }
  return core_->scheduler;
}

runtime& default_runtime() {
  detail::registry& all = detail::registry::get();
  if (runtime* r = all.standard.load(std::memory_order_acquire)) return *r;
  // Made outside of the lock, which making a runtime takes; of two, one is thrown away.
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
  auto made = std::make_unique<runtime>();
  runtime* expected = nullptr;
  if (all.standard.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel)) {
    // Once, and once more in the child of a fork, where handlers that were called are gone.
    static_cast<void>(std::atexit(&detail::halt_default_runtime));
    return *made.release();
  }
  return *expected;
}

}  // namespace verge
