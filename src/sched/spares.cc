// Spare processors: what runs while every processor is stuck in user code.
//
// C++ tasks cannot be preempted. A task that blocks without saying so (verge::blocking) keeps its
// processor, and if all do nothing else would run: no timer, no task. The monitor sees that, and
// brings up a spare processor, at most one at a time; when that one is stuck as well, another. They
// are made when they are needed, rest when there is nothing to do, and go when one of the others
// comes back.
//
// All of them run timers that are overdue and what waits to go on. New tasks may well be of the
// kind that the others are stuck in, or merely slow; to begin them all at once would be a thread
// for each. So these are begun when no processor has come round for 100 ms, by one spare processor
// that takes them one after the other as long as they end soon; and by one more whenever there has
// been none that could begin another for 100 ms.
//
// What keeps a spare processor is blocked in the kernel, or it computes. If it computes then either
// it does so for ever, and another thread helps; or things are late because there is not enough
// processor time, and another thread makes each of them later still, so that more look stuck, up to
// a thread for everything that is overdue: 127 for 300 callbacks of 5 ms on one processor. The two
// cannot be told apart, so the number of those that compute grows ever more slowly. After the n-th
// the next has to wait for 10 ms * 2^n: ten within 10 s. It costs nothing where they block.

#include <algorithm>
#include <cstdio>
#include <new>

#include <base/runtime_thread.h>
#include <sched/live_scheduler.h>
#include <verge/detail/spawned.h>

namespace verge::detail {

runnable* live_scheduler::look_as_spare(processor& p) noexcept {
  run_overdue(p);
  if (left_behind_.load(std::memory_order_relaxed)) {
    left_behind_.store(false, std::memory_order_relaxed);
    if (runnable* r = rescue(p)) return r;
  }
  if (p.tick.load(std::memory_order_relaxed) % global_turn == 0) {
    if (runnable* r = take_as_spare(p)) return r;
  }
  if (runnable* r = take_local(p)) return r;
  if (runnable* r = take_as_spare(p)) return r;
  return rescue(p);
}

/// One of what is in the global queue, and no more: it may be stuck, too.
runnable* live_scheduler::take_as_spare(const processor& p) noexcept {
  if (global_size_.load(std::memory_order_relaxed) == 0) return nullptr;
  std::lock_guard held(lock_);
  return p.begins_tasks || !only_new_tasks_locked() ? pop_global_locked() : nullptr;
}

/// Whether what is first in the global queue has yet to begin, so that what comes behind has to
/// wait for that.
bool live_scheduler::only_new_tasks_locked() const noexcept {
  return fired_.empty() && (global_.empty() || spawned_base::is_new(*global_.front()));
}

/// Takes what waits behind a task that another processor is stuck in: callbacks that have fired,
/// tasks that wait to go on. New tasks go to the global queue.
runnable* live_scheduler::rescue(processor& p) noexcept {
  runnable* rescued = nullptr;
  for_each_processor([&](processor& from) {
    if (rescued != nullptr || &from == &p) return;
    ready_list under_way;
    ready_list new_tasks;
    for (runnable* r = p.queue.steal_half(from.queue, true); r != nullptr; r = p.queue.take()) {
      (spawned_base::is_new(*r) ? new_tasks : under_way).push_back(*r);
    }
    if (!new_tasks.empty()) push_global(std::move(new_tasks));
    rescued = under_way.pop_front();
    while (runnable* r = under_way.pop_front()) push_local(p, *r);
  });
  return rescued;
}

/// A spare processor that rests, or a new one; nullptr if all there may be are in use.
processor* live_scheduler::take_spare_locked() noexcept {
  processor* p = nullptr;
  const unsigned made = spares_made_.load(std::memory_order_relaxed);
  if (spares_at_rest_.any()) {
    const std::size_t i = spares_at_rest_.first();
    spares_at_rest_.reset(i);
    p = spares_[i].get();
  } else if (made < spare_limit_) {
    try {
      spares_[made] = std::make_unique<processor>(max_processors + made, 0x9e3779b97f4a7c15 + made);
    } catch (const std::bad_alloc&) {
      return nullptr;  // the monitor asks again
    }
    spares_made_.store(made + 1, std::memory_order_release);
    p = spares_[made].get();
  }
  if (p != nullptr) p->returns_seen = returns_.load(std::memory_order_relaxed);
  return p;
}

/// The spare processor rests.
void live_scheduler::put_spare_locked(processor& p) noexcept {
  if (p.begins_tasks) --spares_for_tasks_;
  p.begins_tasks = false;
  spares_at_rest_.set(p.id - max_processors);
}

/// By the monitor. One at a time: the last must have begun to look before another comes up, or a
/// machine that is slow to start a thread would have hundreds of them. Whether one was started.
bool live_scheduler::bring_up_spare(stuckness how, std::int64_t now) noexcept {
  if (stuck_.load(std::memory_order_relaxed) < how) stuck_.store(how, std::memory_order_relaxed);
  if (coming_up_ != nullptr &&
      coming_up_->tick.load(std::memory_order_relaxed) == coming_up_tick_) {
    return false;
  }
  coming_up_ = nullptr;
  if (processor_time_is_short(now)) return false;
  processor* p = nullptr;
  unsigned in_use = 0;
  {
    std::lock_guard held(lock_);
    if (stopping_.load(std::memory_order_relaxed) || spare_limit_ == 0) return false;
    p = take_spare_locked();
    if (p != nullptr && how == stuckness::all) {
      p->begins_tasks = true;
      ++spares_for_tasks_;
    }
    in_use = processors() + spares_made_.load(std::memory_order_relaxed);
  }
  if (p == nullptr) {
    say_once(
        "verge: %u tasks or callbacks block, which is as many as there may be: no timer fires and "
        "no task begins until one of them goes on. Call what blocks through verge::blocking()\n",
        in_use);
    return false;
  }
  const std::uint32_t tick = p->tick.load(std::memory_order_relaxed);
  if (!start_worker(p, false)) {
    say_once(
        "verge: %u tasks or callbacks block, and there is no thread to be had for others: no timer "
        "fires and no task begins until one of them goes on, or more threads are allowed\n",
        in_use - 1);
    return false;
  }
  coming_up_ = p;
  coming_up_tick_ = tick;
  spare_used_.add();
  return true;
}

/// Whether the spare processors that compute have become more so lately that it is too soon for
/// another. One that moves is no reason to wait: it does not compute for long.
bool live_scheduler::processor_time_is_short(std::int64_t now) noexcept {
  constexpr std::int64_t first_wait = 10'000'000;
  constexpr unsigned most_doublings = 16;
  bit_set<max_spares> at_rest;
  {
    std::lock_guard held(lock_);
    at_rest = spares_at_rest_;
  }
  unsigned computing = 0;
  const unsigned made = spares_made_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < made; ++i) {
    const processor& p = *spares_[i];
    if (at_rest.test(i) || !still_.test(p.id)) continue;
    if (is_computing(p.thread.load(std::memory_order_relaxed))) ++computing;
  }
  if (computing > computing_) computing_since_ = now;
  computing_ = computing;
  return computing != 0 && now - computing_since_ < first_wait
                                                        << std::min(computing, most_doublings);
}

void live_scheduler::say_once(const char* text, unsigned number) noexcept {
  if (said_) return;
  said_ = true;
  std::fprintf(stderr, text, number);
}

void live_scheduler::limit_spares(unsigned n) noexcept {
  std::lock_guard held(lock_);
  spare_limit_ = std::min(n, max_spares);
}

/// Whether one of those that were stuck when the spare processor came up has moved since.
bool live_scheduler::others_came_back(const processor& spare) noexcept {
  return idle_count_.load(std::memory_order_relaxed) != 0 ||
         returns_.load(std::memory_order_relaxed) != spare.returns_seen;
}

}  // namespace verge::detail
