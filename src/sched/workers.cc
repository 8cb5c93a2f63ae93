// Workers, and which of them holds which processor.

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <stdexcept>
#include <string>
#include <thread>

#include <base/fence.h>
#include <base/runtime_thread.h>
#include <base/this_thread.h>
#include <clock/fast_clock.h>
#include <clock/true_clock.h>
#include <engine/clockwork.h>
#include <sched/live_scheduler.h>
#include <sched/living_schedulers.h>
#include <verge/detail/lock.h>

namespace verge::detail {

namespace {

/// How long the end of a program waits for callbacks and tasks that are running.
constexpr std::int64_t halt_patience = 1'000'000'000;

void check_number(unsigned n) {
  if (n >= 1 && n <= live_scheduler::max_processors) return;
  throw std::invalid_argument("verge: the number of processors must be from 1 to " +
                              std::to_string(live_scheduler::max_processors) + ", not " +
                              std::to_string(n));
}

}  // namespace

live_scheduler::live_scheduler(unsigned processors, exception_handler handler,
                               poller::wait_method method)
    : handler_(std::move(handler)),
      shared_poller_(std::make_shared<poller>(method)),
      poller_(*shared_poller_),
      processors_(processors) {
  check_number(processors);
}

live_scheduler::~live_scheduler() {
  stop();
  scheduler_ends(*this);
}

void live_scheduler::start(clockwork& timers) {
  timers_ = &timers;
  engine_ = &timers.its_engine();
  scheduler_begins(*this);
  const unsigned n = processors();
  processors_.store(0, std::memory_order_relaxed);
  set_processors(n);
  monitor_ = start_runtime_thread([this] { sysmon(); });
}

void live_scheduler::stop() noexcept {
  {
    std::lock_guard held(lock_);
    if (stopping_.exchange(true)) return;
  }
  monitor_note_.leave();
  if (monitor_.joinable()) monitor_.join();
  // No new worker starts from here on: start_worker looks at stopping_ under the lock. A worker
  // that still runs may read the one that ran its task before (set_current_job), and join() looks
  // for a task in all of them: none is destroyed before all threads have ended.
  for (std::size_t i = 0;; ++i) {
    poller_.break_poll();
    worker* w = nullptr;
    {
      std::lock_guard held(lock_);
      let_idle_workers_go_locked();
      if (i == workers_.size()) {
        ended_ = true;
        break;
      }
      w = workers_[i].get();
    }
    if (w->thread.get_id() == std::this_thread::get_id()) {
      // A task ends the runtime, or the program: its thread comes back here later, or never.
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
  // Nobody polls any more: threads, and tasks of other runtimes, that wait for a descriptor of this
  // one are told. With no lock, for they are woken.
  poller_.end();
}

void live_scheduler::let_idle_workers_go_locked() noexcept {
  for (worker* idle = idle_workers_; idle != nullptr; idle = idle->next_idle) {
    idle->parked.leave();
  }
  idle_workers_ = nullptr;
}

void live_scheduler::halt() noexcept {
  {
    std::lock_guard held(lock_);
    if (stopping_.exchange(true)) return;
    let_idle_workers_go_locked();
  }
  monitor_note_.leave();
  halted_by_.store(this_thread.as_worker, std::memory_order_relaxed);
  halted_.store(true, std::memory_order_relaxed);
  // Who is seen to wait from here on sees this when it has waited.
  full_fence();
  const std::int64_t end = true_now() + halt_patience;
  while (somebody_runs() && true_now() < end) {
    poller_.break_poll();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  if (monitor_.joinable()) monitor_.join();
  // Those that have ended are joined with no lock held, and not for long: there may be thread_local
  // objects of the user's.
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

bool live_scheduler::runs_here() const noexcept {
  const worker* const w = this_thread.as_worker;
  return w != nullptr && &w->home == this;
}

/// Anybody but the calling thread.
bool live_scheduler::somebody_runs() const noexcept {
  std::lock_guard held(lock_);
  return std::ranges::any_of(workers_, [](const std::unique_ptr<worker>& w) {
    return w.get() != this_thread.as_worker && !w->ended.load(std::memory_order_acquire) &&
           !w->waits.load(std::memory_order_acquire);
  });
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
  for_each_processor([&](processor& p) {
    if (found == nullptr) found = p.queue.take_next();
    if (found == nullptr) found = p.queue.take();
  });
  return found != nullptr ? found : pop_global_locked();
}

void live_scheduler::set_processors(unsigned n) {
  refuse_if_lost();
  check_number(n);
  std::lock_guard one_at_a_time(resize_lock_);
  engine_->grow(n);
  for (unsigned i = slots(); i < n; ++i) {
    all_[i] = std::make_unique<processor>(i, 0x2545f4914f6cdd1dU * (i + 1));
    all_[i]->retired.store(true, std::memory_order_relaxed);
    slots_.store(i + 1, std::memory_order_release);
  }
  bit_set<max_processors> dropped;
  {
    std::lock_guard held(lock_);
    for (unsigned i = 0; i < slots(); ++i) {
      processor& p = *all_[i];
      if (i < n) {
        p.retiring.store(false, std::memory_order_relaxed);
        if (!p.retired.load(std::memory_order_relaxed)) continue;
        p.retired.store(false, std::memory_order_relaxed);
        put_idle_locked(p);
      } else if (idle_.test(i)) {
        idle_.reset(i);
        idle_count_.fetch_sub(1, std::memory_order_relaxed);
        p.retired.store(true, std::memory_order_relaxed);
        dropped.set(i);
      } else if (!p.retired.load(std::memory_order_relaxed)) {
        p.retiring.store(true, std::memory_order_relaxed);  // its worker sees it before long
      }
    }
    processors_.store(n, std::memory_order_release);
  }
  for (unsigned i = n; i < slots(); ++i) {
    if (dropped.test(i)) engine_->move_timers(i, i % n);
  }
  wake_processor();
}

/// Gives up a processor that is no longer wanted. What it had goes to the others.
void live_scheduler::retire(worker& w) noexcept {
  processor& p = *w.held;
  ready_list all;
  while (runnable* r = p.queue.take_next()) all.push_back(*r);
  while (runnable* r = p.queue.take()) all.push_back(*r);
  bool gone = false;
  {
    std::lock_guard held(lock_);
    global_.append(std::move(all));
    global_size_.store(global_.size() + fired_.size(), std::memory_order_relaxed);
    if (is_spare(p)) {
      give_up_locked(w);
    } else if (p.retiring.exchange(false, std::memory_order_relaxed)) {
      p.retired.store(true, std::memory_order_relaxed);
      w.held = nullptr;
      gone = true;
    }
  }
  if (w.held == nullptr && w.spinning) {
    w.spinning = false;
    spinning_.fetch_sub(1, std::memory_order_relaxed);
  }
  if (gone) engine_->move_timers(p.id, p.id % processors());
  wake_processor();
}

processor* live_scheduler::take_idle_locked() noexcept {
  if (idle_.none()) return nullptr;
  const auto i = static_cast<unsigned>(idle_.first());
  return take_idle_locked(*all_[i]);
}

/// An idle processor, if possible that one; while all are stuck, a spare one.
processor* live_scheduler::take_idle_or_spare(unsigned preferred) noexcept {
  std::lock_guard held(lock_);
  if (idle_.test(preferred)) return take_idle_locked(*all_[preferred]);
  if (processor* p = take_idle_locked()) return p;
  return stuck_.load(std::memory_order_relaxed) != stuckness::none ? take_spare_locked() : nullptr;
}

processor* live_scheduler::take_idle_locked(processor& p) noexcept {
  idle_.reset(p.id);
  idle_count_.fetch_sub(1, std::memory_order_relaxed);
  if (monitor_asleep_.load(std::memory_order_relaxed)) {
    monitor_asleep_.store(false, std::memory_order_relaxed);
    monitor_note_.leave();
  }
  return &p;
}

/// The processor rests from now on.
void live_scheduler::put_idle_locked(processor& p) noexcept {
  if (is_spare(p)) return put_spare_locked(p);
  idle_.set(p.id);
  idle_count_.fetch_add(1, std::memory_order_relaxed);
}

void live_scheduler::give_up_locked(worker& w) noexcept {
  processor& p = *w.held;
  w.held = nullptr;
  put_idle_locked(p);
}

/// Wakes or starts a worker for processor p, or for an idle one if p is nullptr. With `spinning`,
/// the caller has counted it among the spinning already. False if there is no thread to be had.
bool live_scheduler::start_worker(processor* p, bool spinning) noexcept {
  std::unique_lock held(lock_);
  if (p != nullptr && ended_) {  // for a task that has ended the runtime, and goes on
    put_idle_locked(*p);
    p = nullptr;
  }
  if (p == nullptr && !stopping_.load(std::memory_order_relaxed)) p = take_idle_locked();
  if (p == nullptr) {
    if (spinning) spinning_.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }
  worker* w = idle_workers_;
  if (w != nullptr) {
    idle_workers_ = w->next_idle;
    held.unlock();
    w->given = p;
    w->spinning = spinning;
    w->parked.leave();
    return true;
  }
  try {
    auto made = std::make_unique<worker>(*this);
    w = made.get();
    w->held = p;
    w->spinning = spinning;
    workers_.push_back(std::move(made));
    w->thread = start_runtime_thread([this, w] { work(*w); });
    workers_started_.fetch_add(1, std::memory_order_relaxed);
    return true;
  } catch (...) {
    // No thread to be had. The processor stays idle; the monitor tries again while there is work.
    if (w != nullptr && !workers_.empty() && workers_.back().get() == w) workers_.pop_back();
    put_idle_locked(*p);
    if (spinning) spinning_.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }
}

/// Sleeps until somebody gives this worker a processor. False when the scheduler stops.
bool live_scheduler::park(worker& w) noexcept {
  {
    std::lock_guard held(lock_);
    if (stopping_.load(std::memory_order_relaxed)) return false;
    w.given = nullptr;
    w.next_idle = idle_workers_;
    idle_workers_ = &w;
  }
  w.parked.wait();
  w.held = w.given;
  if (w.held == nullptr) return false;
  w.held->wakeups.add();
  return true;
}

bool live_scheduler::acquire_or_park(worker& w) noexcept {
  {
    std::lock_guard held(lock_);
    if (stopping_.load(std::memory_order_relaxed)) return false;
    w.held = take_idle_locked();
  }
  return w.held != nullptr || park(w);
}

/// Found something to run. If this was the last one that looked, another takes its place: there may
/// be more, and somebody has to be there for the poller.
void live_scheduler::stop_spinning(worker& w) noexcept {
  w.spinning = false;
  const unsigned before = spinning_.fetch_sub(1, std::memory_order_relaxed);
  if (before == 1 &&
      (!w.held->queue.empty() || global_size_.load(std::memory_order_relaxed) != 0)) {
    wake_processor();
  }
}

void live_scheduler::hand_off(worker& w) noexcept {
  processor& p = *w.held;
  if (p.retiring.load(std::memory_order_relaxed) || is_spare(p)) return retire(w);
  w.held = nullptr;
  if (!p.queue.empty() || global_size_.load(std::memory_order_relaxed) != 0) {
    start_worker(&p, false);
    return;
  }
  {
    std::lock_guard held(lock_);
    put_idle_locked(p);
  }
  // Somebody has to look after the timers, and after what came onto the global queue just now.
  full_fence();
  if (poll_until_.load(std::memory_order_relaxed) == 0 ||
      global_size_.load(std::memory_order_relaxed) != 0) {
    wake_processor();
  }
}

/// After a call that blocked: takes the last processor back if nobody wanted it, or another idle
/// one. If there is none the worker goes on without, to the end of what it runs.
void live_scheduler::regain(worker& w, processor* last) noexcept {
  std::lock_guard held(lock_);
  if (stopping_.load(std::memory_order_relaxed)) return;
  if (last != nullptr && last->id < max_processors && idle_.test(last->id)) {
    w.held = take_idle_locked(*last);
  } else {
    w.held = take_idle_locked();
  }
}

void live_scheduler::enter_blocking() noexcept {
  worker* w = worker_with_processor();
  // What ends with a timer, in the middle of a look at timers, keeps the processor: the look needs
  // it afterwards.
  if (w == nullptr || w->firing) return;
  w->before_blocking = w->held;
  hand_off(*w);
}

void live_scheduler::leave_blocking() noexcept {
  worker* w = this_thread.as_worker;
  if (w == nullptr || &w->home != this || w->held != nullptr) return;
  regain(*w, w->before_blocking);
}

void live_scheduler::block(thread_waiter& waiter, const char* /*waiting_for*/) noexcept {
  if (waiter.woken()) return;
  worker* const w = runs_here() ? this_thread.as_worker : nullptr;
  if (w != nullptr) w->waits.store(true, std::memory_order_release);
  enter_blocking();
  waiter.wait_in_kernel();
  if (w != nullptr) {
    w->waits.store(false, std::memory_order_release);
    full_fence();
    if (halted_.load(std::memory_order_relaxed) &&
        w != halted_by_.load(std::memory_order_relaxed)) {
      w->waits.store(true, std::memory_order_release);
      for (;;) ::pause();
    }
  }
  leave_blocking();
}

void live_scheduler::unblock(thread_waiter& waiter) noexcept { waiter.wake_in_kernel(); }

std::int64_t live_scheduler::now() noexcept { return true_now(); }
std::int64_t live_scheduler::cheap_now() noexcept { return fast_clock::now(); }

std::uint64_t live_scheduler::random() noexcept {
  if (worker* w = worker_with_processor()) return w->held->random();
  thread_local std::uint64_t state = reinterpret_cast<std::uintptr_t>(&state) | 1;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

/// Threads that hold no processor are dealt out over all of them, once and for good: a thread's
/// timers stay together, and two threads seldom meet at one lock.
unsigned live_scheduler::home_processor() noexcept {
  if (worker* w = worker_with_processor(); w != nullptr && !is_spare(*w->held)) return w->held->id;
  static std::atomic<unsigned> dealt{0};
  thread_local const unsigned mine = dealt.fetch_add(1, std::memory_order_relaxed);
  return mine % processors();
}

void live_scheduler::timer_fired(std::int64_t when, std::int64_t now) noexcept {
  if (worker* w = worker_with_processor()) {
    w->held->timers_fired.add();
    w->held->lateness.record(now - when);
    return;
  }
  std::lock_guard held(foreign_lock_);
  foreign_fired_.add();
  foreign_lateness_.record(now - when);
}

live_scheduler::figures live_scheduler::read(unsigned p) const noexcept {
  const unsigned n = slots();
  const processor& it = p < n ? *all_[p] : *spares_[p - n];
  return {.tasks_run = it.tasks_run.read(),
          .timers_fired = it.timers_fired.read(),
          .timers_stolen = it.timers_stolen.read(),
          .wakeups = it.wakeups.read(),
          .queued = it.queue.size(),
          .lateness = it.lateness.read()};
}

live_scheduler::figures live_scheduler::read_foreign() const noexcept {
  return {.tasks_run = 0,
          .timers_fired = foreign_fired_.read(),
          .timers_stolen = 0,
          .wakeups = 0,
          .queued = 0,
          .lateness = foreign_lateness_.read()};
}

void live_scheduler::job_started(job& j) {
  refuse_if_lost();
  job_list& list = list_of(j);
  std::lock_guard held(list.lock);
  j.prev_live = nullptr;
  j.next_live = list.first;
  if (list.first != nullptr) list.first->prev_live = &j;
  list.first = &j;
}

void live_scheduler::job_ended(job& j) noexcept {
  job_list& list = list_of(j);
  std::lock_guard held(list.lock);
  (j.prev_live == nullptr ? list.first : j.prev_live->next_live) = j.next_live;
  if (j.next_live != nullptr) j.next_live->prev_live = j.prev_live;
}

void live_scheduler::abandon_jobs() noexcept {
  job* const running = runs_here() ? current_job() : nullptr;  // the one that ends the runtime
  for (job_list& list : jobs_) {
    for (;;) {
      job* j = nullptr;
      {
        std::lock_guard held(list.lock);
        j = list.first;
        if (j != nullptr && j == running) j = j->next_live;
      }
      if (j == nullptr) break;
      j->abandon(*j);  // ends the job, which takes it off the list
    }
  }
  wait_for_visitors();
}

void live_scheduler::unhandled(std::exception_ptr e) noexcept { handler_(std::move(e)); }

}  // namespace verge::detail
