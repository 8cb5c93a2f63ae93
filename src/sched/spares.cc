// SPDX-License-Identifier: Apache-2.0

// Spare processors: what runs while every processor is stuck in user code.
//
// C++ tasks cannot be preempted. A task that blocks without saying so (verge::blocking) keeps its
// processor, and if all do, no timer fires and no task runs. The monitor sees that, and brings up a
// spare processor, at most one at a time; when that one is stuck as well, another. They are made
// when they are needed, rest when there is nothing to do, and stop when one of the others comes
// back.
//
// All of them run overdue timers and tasks that were suspended. New tasks may well be of the kind
// that the others are stuck in, or merely slow; to begin them all at once would take a thread for
// each. So new tasks begin when no processor has come round for 100 ms, on one spare processor that
// takes them one after the other as long as they end soon; and on one more whenever there has been
// none that could begin another for 100 ms.
//
// A spare processor that is stuck either blocks in the kernel or computes. If it computes, then
// either it does so forever, and another thread helps; or things are late because there is not
// enough processor time, and another thread makes each of them later still, so that more look
// stuck, up to a thread for everything that is overdue: 127 for 300 callbacks of 5 ms on one
// processor. The two cannot be told apart, so the number of those that compute grows ever more
// slowly. After the n-th, the next has to wait for 10 ms * 2^n: ten within 10 s. Where they block,
// there is no wait.

#include <mutex>
#include <utility>

#include <sched/live_scheduler.h>
#include <verge/detail/spawned.h>

namespace verge::detail {

runnable* live_scheduler::look_as_spare(processor& p) noexcept {
  if (looks_at_timers(p)) run_overdue(p);
  if (spares_.answer_left_behind()) {
    if (runnable* r = rescue(p)) return r;
  }
  if (p.tick.load(std::memory_order_relaxed) % global_turn == 0) {
    if (runnable* r = take_as_spare(p)) return r;
  }
  if (runnable* r = take_local(p)) return r;
  if (runnable* r = take_as_spare(p)) return r;
  return rescue(p);
}

/// Takes one from the global queue, and no more, because that one may be stuck as well.
runnable* live_scheduler::take_as_spare(const processor& p) noexcept {
  if (global_.empty()) return nullptr;
  std::lock_guard held(lock_);
  return p.begins_tasks || !global_.only_new_tasks_locked() ? global_.pop_locked() : nullptr;
}

processor* live_scheduler::take_spare_locked() noexcept {
  processor* const p = spares_.take_locked(all_);
  if (p != nullptr) set_traced_locked(*p);
  return p;
}

/// Takes what waits behind a task that another processor is stuck in: callbacks that have fired and
/// tasks that were suspended. New tasks are put on the global queue.
runnable* live_scheduler::rescue(processor& p) noexcept {
  runnable* rescued = nullptr;
  all_.for_each([&](processor& from) {
    if (rescued != nullptr || &from == &p) return;
    ready_list under_way;
    ready_list new_tasks;
    for (runnable* r = p.queue.steal_half(from.queue, true); r != nullptr; r = p.queue.take()) {
      (spawned_base::is_new(*r) ? new_tasks : under_way).push_back(*r);
    }
    if (!new_tasks.empty()) push_global(std::move(new_tasks));
    rescued = under_way.pop_front();
    push_local(p, under_way);
  });
  return rescued;
}

/// Called by the monitor. One at a time: the last must have begun to look before another comes up,
/// or a machine that is slow to start a thread would have hundreds of them. True if one was
/// started.
bool live_scheduler::bring_up_spare(stuckness how, std::int64_t now) noexcept {
  spares_.found_stuck(how);
  if (spares_.one_is_coming_up()) return false;
  spare_processors::set at_rest;
  {
    std::lock_guard held(lock_);
    at_rest = spares_.at_rest_locked();
  }
  if (spares_.processor_time_is_short(all_, at_rest, progress_, now)) return false;
  processor* p = nullptr;
  {
    std::lock_guard held(lock_);
    if (stopping_.load(std::memory_order_relaxed) || spares_.limit_locked() == 0) return false;
    p = take_spare_locked();
    if (p != nullptr && how == stuckness::all) spares_.let_begin_tasks_locked(*p);
  }
  const unsigned in_use = processors() + all_.spares_made();
  if (p == nullptr) {
    spares_.say_once(
        "%u tasks or callbacks block, which is as many as there may be: no timer fires and no task "
        "begins until one of them goes on. Call what blocks through verge::blocking()",
        in_use);
    return false;
  }
  const std::uint32_t tick = p->tick.load(std::memory_order_relaxed);
  if (!start_worker(p, false)) {
    spares_.say_once(
        "%u tasks or callbacks block, and no thread can be started for others: no timer fires and "
        "no task begins until one of them goes on, or more threads are allowed",
        in_use - 1);
    return false;
  }
  spares_.brought_up(*p, tick);
  return true;
}

void live_scheduler::limit_spares(unsigned n) noexcept {
  std::lock_guard held(lock_);
  spares_.limit_to_locked(n);
}

/// Whether a processor that is not spare could do what this one does.
bool live_scheduler::others_came_back(const processor& spare) const noexcept {
  return idle_.any() || spares_.others_came_back(spare);
}

}  // namespace verge::detail
