// SPDX-License-Identifier: Apache-2.0

#include <sched/simulated_scheduler.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <base/log.h>
#include <base/runtime_thread.h>
#include <base/this_thread.h>
#include <clock/arithmetic.h>
#include <clock/simulated_time.h>
#include <engine/clockwork.h>
#include <sched/living_schedulers.h>

namespace verge::detail {

namespace {

[[noreturn]] void stop_program(const std::string& why) {
  log(log_level::fatal, "%s", why.c_str());
  std::abort();
}

}  // namespace

std::string in_years(std::int64_t t) {
  constexpr std::int64_t year = 31'556'952'000'000'000;
  return std::to_string(t / year) + " years";
}

simulated_scheduler::simulated_scheduler(std::uint64_t seed, std::int64_t start,
                                         std::function<void(std::exception_ptr)> handler)
    : seed_(seed),
      // Seeds that differ in a bit should give runs that differ in all.
      random_((seed + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9),
      handler_(std::move(handler)),
      now_(start) {}

simulated_scheduler::~simulated_scheduler() {
  stop();
  scheduler_ends(*this);
}

void simulated_scheduler::start(clockwork& timers) {
  timers_ = &timers;
  engine_ = &timers.its_engine();
  scheduler_begins(*this);
  engine_->grow(1);
}

void simulated_scheduler::stop() noexcept {
  {
    std::lock_guard held(lock_);
    if (stopping_) return;
    stopping_ = true;
    if (idle_turners_.size() != turners_.size()) {
      stop_program("a simulation cannot end while a plain function is blocked" + waiting_locked());
    }
    if (!blocked_.empty() || !ready_threads_.empty()) {
      stop_program(
          "a simulation cannot end while another thread takes part in it; wait until its "
          "simulation::participant is destroyed" +
          waiting_locked());
    }
    for (turner* t : idle_turners_) t->turn.leave();
    idle_turners_.clear();
  }
  for (auto& t : turners_) t->thread.join();
  turners_.clear();
}

void simulated_scheduler::adopt_this_thread() noexcept {
  this_thread.current = this;
  simulated_time = &now_;
}
void simulated_scheduler::release_this_thread() noexcept {
  this_thread.current = nullptr;
  simulated_time = nullptr;
}

void simulated_scheduler::enter() noexcept { adopt_this_thread(); }
void simulated_scheduler::leave() noexcept { release_this_thread(); }

void simulated_scheduler::join_in() noexcept {
  blocked_thread me{.waiting_for = "its turn"};
  {
    std::lock_guard held(lock_);
    ready_threads_.push_back(&me);
  }
  me.turn.wait();
  adopt_this_thread();
}

void simulated_scheduler::drop_out() noexcept {
  release_this_thread();
  std::lock_guard held(lock_);
  give_baton_to_turner_locked();
}

/// Called with the baton, which the caller gives away.
void simulated_scheduler::give_baton_to_turner_locked() {
  if (!idle_turners_.empty()) {
    turner* t = idle_turners_.back();
    idle_turners_.pop_back();
    t->turn.leave();
    return;
  }
  turners_.push_back(std::make_unique<turner>());
  turner& t = *turners_.back();
  t.thread = start_thread([this, &t] { take_turns(t); });
}

void simulated_scheduler::take_turns(turner& self) noexcept {
  adopt_this_thread();
  this_thread.takes_turns = true;
  std::unique_lock held(lock_);
  while (!stopping_) {
    if (blocked_thread* b = take_finished_run_locked()) {
      hand_over_locked(self, *b, held);
      continue;
    }
    const std::size_t tasks = ready_tasks_.size();
    const std::size_t all = tasks + ready_threads_.size();
    if (all == 0) {
      if (blocked_thread* b = move_time(held)) hand_over_locked(self, *b, held);
      continue;
    }
    const std::size_t i = random() % all;
    if (i < tasks) {
      runnable* r = std::exchange(ready_tasks_[i], ready_tasks_.back());
      ready_tasks_.pop_back();
      held.unlock();
      run_ready(*r);
      held.lock();
    } else {
      blocked_thread* b = std::exchange(ready_threads_[i - tasks], ready_threads_.back());
      ready_threads_.pop_back();
      hand_over_locked(self, *b, held);
    }
  }
}

/// Gives the baton to `to`, and waits until this turner is needed again.
void simulated_scheduler::hand_over_locked(turner& self, blocked_thread& to,
                                           std::unique_lock<std::mutex>& held) {
  idle_turners_.push_back(&self);
  to.turn.leave();
  held.unlock();
  self.turn.wait();
  held.lock();
}

simulated_scheduler::blocked_thread* simulated_scheduler::take_finished_run_locked() noexcept {
  const auto it = std::find_if(blocked_.begin(), blocked_.end(), [](const blocked_thread* b) {
    return b->until != nullptr && (*b->until)();
  });
  return it == blocked_.end() ? nullptr : take_blocked_locked(it);
}

/// Everything is blocked: moves time to the next timer and fires what is due then, or to the end of
/// a run_for() if that comes first. Returns the thread that is to continue, unless a timer wakes
/// it.
simulated_scheduler::blocked_thread* simulated_scheduler::move_time(
    std::unique_lock<std::mutex>& held) noexcept {
  held.unlock();
  std::int64_t next = engine_->next_exactly(0);
  held.lock();
  only_never_ = next == never;
  if (next == 0) next = never;
  // Made ready by a thread that takes no part, or by one that joins.
  if (!ready_tasks_.empty() || !ready_threads_.empty()) return nullptr;
  const auto first = std::min_element(
      blocked_.begin(), blocked_.end(),
      [](const blocked_thread* a, const blocked_thread* b) { return a->end < b->end; });
  if (first != blocked_.end() && (*first)->end < next) {
    jump_to((*first)->end);
    return take_blocked_locked(first);
  }
  if (next == never) return check_dead_locked();  // timers that are never due do not count
  held.unlock();
  jump_to(next);
  engine_->check_timers(0, now(), true);
  held.lock();
  return nullptr;
}

void simulated_scheduler::jump_to(std::int64_t t) noexcept {
  if (t <= now()) return;
  now_.store(t, std::memory_order_release);
  jumps_.fetch_add(1, std::memory_order_relaxed);
}

simulated_scheduler::blocked_thread* simulated_scheduler::take_blocked_locked(
    std::vector<blocked_thread*>::iterator which) noexcept {
  blocked_thread* const b = *which;
  blocked_.erase(which);
  return b;
}

simulated_scheduler::hears simulated_scheduler::of_deadlock() noexcept {
  if (!this_thread.takes_turns) return hears::first;
  return this_thread.running != nullptr ? hears::second : hears::last;
}

/// Nothing can ever continue. Returns the thread that is told; if there is none that could be, the
/// program stops.
simulated_scheduler::blocked_thread* simulated_scheduler::check_dead_locked() noexcept {
  const auto run = std::find_if(blocked_.begin(), blocked_.end(), waits_in_run);
  if (run != blocked_.end()) {
    (*run)->deadlocked = true;
    return take_blocked_locked(run);
  }
  auto told = blocked_.end();
  for (auto it = blocked_.begin(); it != blocked_.end(); ++it) {
    if (!(*it)->waiter->may_end_by_deadlock()) continue;
    if (told == blocked_.end() || (*it)->rank < (*told)->rank) told = it;
  }
  if (told == blocked_.end()) stop_program(deadlock_locked());
  // If that fails, a thread that takes no part is about to wake it.
  if (!(*told)->waiter->claim(waiter::by_deadlock)) return nullptr;
  deadlock_found_ = "verge: " + deadlock_locked();
  return take_blocked_locked(told);
}

std::string simulated_scheduler::report_of_deadlock() const {
  std::lock_guard held(lock_);
  return deadlock_found_;
}

std::string simulated_scheduler::report() const {
  std::lock_guard held(lock_);
  return "verge: " + deadlock_locked();
}

std::string simulated_scheduler::deadlock_locked() const {
  const std::int64_t t = now_.load(std::memory_order_relaxed);
  char time[64];
  std::snprintf(time, sizeof time, "%lld.%09lld s", static_cast<long long>(t / 1'000'000'000),
                static_cast<long long>(t % 1'000'000'000));
  return std::string("deadlock at ") + time + ": everything is blocked and " +
         state_of_timers_locked() + waiting_locked();
}

std::string simulated_scheduler::state_of_timers_locked() const {
  if (!only_never_) return "no timer is pending";
  const std::int64_t last = engine_->last_time();
  std::string text = "the timers that are pending are never due, being later than " +
                     in_years(last) + ", the last time there is with this engine";
  if (last < never - 1) text += "; others, such as processor_heap, know " + in_years(never);
  return text;
}

/// A line for each task and thread, with what it waits for.
std::string simulated_scheduler::waiting_locked() const {
  std::string text;
  jobs_.for_each([&](const job& j) {
    const char* what = j.waiting_for.load(std::memory_order_relaxed);
    text += "\n  task " + std::to_string(j.number) + " waits for ";
    text += what == nullptr ? "its turn" : what;
  });
  for (const blocked_thread* b : blocked_) {
    if (waits_in_run(b)) continue;
    text += "\n  a thread waits for ";
    text += b->waiting_for;
  }
  for (std::size_t i = 0; i < ready_threads_.size(); ++i) text += "\n  a thread waits for its turn";
  return text;
}

bool simulated_scheduler::run_until(const std::function<bool()>& done) {
  {
    std::lock_guard held(lock_);
    if (done()) return true;
  }
  blocked_thread me{.waiting_for = "the end of run()", .until = &done};
  return give_baton_away(me);
}

bool simulated_scheduler::run_for(std::int64_t d) {
  blocked_thread me{.waiting_for = "the end of run_for()",
                    .end = saturating_add(now(), std::max<std::int64_t>(d, 0))};
  return give_baton_away(me);
}

bool simulated_scheduler::give_baton_away(blocked_thread& me) {
  {
    std::lock_guard held(lock_);
    blocked_.push_back(&me);
    give_baton_to_turner_locked();
  }
  me.turn.wait();
  return !me.deadlocked;
}

void simulated_scheduler::ready(runnable& r) noexcept {
  if (lost()) return;  // no thread will run it, and the lock may be held forever
  std::lock_guard held(lock_);
  if (stopping_) return;  // r may have been destroyed
  ready_tasks_.push_back(&r);
}

std::uint64_t simulated_scheduler::random() noexcept {
  return random_.next() * 0x2545f4914f6cdd1d >> 16;
}

void simulated_scheduler::block(thread_waiter& w, const char* waiting_for) noexcept {
  blocked_thread me{.waiter = &w, .waiting_for = waiting_for};
  {
    std::lock_guard held(lock_);
    if (w.woken()) return;
    blocked_.push_back(&me);
    give_baton_to_turner_locked();
  }
  me.turn.wait();
}

void simulated_scheduler::unblock(thread_waiter& w) noexcept {
  std::lock_guard held(lock_);
  w.wake_in_kernel();  // no thread sleeps there: this marks it woken
  const auto it = std::find_if(blocked_.begin(), blocked_.end(),
                               [&](const blocked_thread* b) { return b->waiter == &w; });
  if (it == blocked_.end()) return;  // woken before it blocks
  ready_threads_.push_back(*it);
  blocked_.erase(it);
}

void simulated_scheduler::job_started(job& j) {
  refuse_if_lost();
  jobs_.add(j);
}

void simulated_scheduler::job_ended(job& j) noexcept { jobs_.remove(j); }

void simulated_scheduler::abandon_jobs() noexcept {
  jobs_.abandon_all();
  wait_for_visitors();
}

runnable* simulated_scheduler::take_leftover() noexcept {
  if (ready_tasks_.empty()) return nullptr;
  runnable* r = ready_tasks_.back();
  ready_tasks_.pop_back();
  return r;
}

}  // namespace verge::detail
