// SPDX-License-Identifier: Apache-2.0
// basic_timers: the timers of one processor - the heap, its lock, and what others may know of it
// without the lock.
//
// The heap is the owner's in name only: thieves run a busy processor's timers, and those of a
// retired processor are moved. So everything in the heap is guarded by `lock`. Threads that only
// want to know how long they may sleep, or whether stopped timers have piled up, read the four
// atomics beside it and take no lock. These are the figures that must never mislead:
//
//   next_when() is never later than the time of any timer whose start or reset has returned. It may
//   be earlier - a stopped timer, one that was put off - and then a thread looks and finds nothing.
//
// Both fields it is made of use zero for "none"; a timer's time is positive.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <engine/ten_states/mutation.h>
#include <engine/ten_states/timer.h>
#include <queue/quad_heap.h>

namespace verge::detail {

/// The memory a policy wants its heaps to use; heap_memory if it does not say.
template <class Policy>
struct timers_memory {
  using type = heap_memory;
};
template <class Policy>
requires requires { typename Policy::memory; }
struct timers_memory<Policy> {
  using type = typename Policy::memory;
};

template <class Policy>
class basic_timers {
 public:
  using timer = basic_timer<Policy>;
  template <class T>
  using atomic = typename Policy::template atomic<T>;

  typename Policy::lock lock;
  /// Under `lock`. The key of an entry is its timer's `when`.
  quad_heap<timer, no_index, typename timers_memory<Policy>::type> heap;

  /// heap.size(). Written under `lock`; publishes nothing else, so relaxed.
  atomic<std::uint32_t> num_timers{0};
  /// How many on the heap are deleted. del raises it before it lets go of the timer: more than
  /// there are for a moment. Exact as soon as no operation is under way; publishes
  /// nothing, so relaxed.
  atomic<std::int32_t> deleted_timers{0};
  /// The key of the heap's root, or less while a sweep is under way; zero if there is none. Written
  /// under `lock`.
  atomic<std::int64_t> timer0_when{0};
  /// No later than `nextwhen` of any modified_earlier timer here; zero if there is none. Lowered by
  /// mod while it holds the timer, cleared under `lock`.
  atomic<std::int64_t> timer_modified_earliest{0};

  // What follows keeps those fields in step with the heap; for the operations (state_machine.h).

  /// After every change to the heap, with `lock` held, and before a timer that came onto it is let
  /// go.
  void heap_changed() {
    num_timers.store(static_cast<std::uint32_t>(heap.size()), std::memory_order_relaxed);
    update_timer0_when();
    // Without timers there are no modified ones: a timer in modifying is on a heap, and not on
    // this. A time left here would be waited for, found to have come, and waited for again (Go
    // #51654).
    if (heap.empty() && timer_modified_earliest.load(std::memory_order_relaxed) != 0 &&
        !mutated<Policy>(mutant::go_51654)) {
      timer_modified_earliest.store(0, std::memory_order_seq_cst);
    }
  }

  /// Tells of a timer here that is due at `when` before its place in the heap says so. The caller
  /// holds it in modifying, and has done so since before the call: a sweep that clears this time
  /// afterwards waits for that timer and puts it in its place (Go #47329).
  void lower_modified_earliest(std::int64_t when) {
    std::int64_t known = timer_modified_earliest.load(std::memory_order_seq_cst);
    while (known == 0 || when < known) {
      if (timer_modified_earliest.compare_exchange_weak(known, when, std::memory_order_seq_cst,
                                                        std::memory_order_seq_cst)) {
        return;
      }
    }
  }

  /// Before a sweep that puts every modified timer in its place, with `lock` held: clears the time
  /// for the sweep to come. Until it is through, timer0_when stands in for what was cleared, so
  /// that no thread sleeps too long in between. It is not zero: a timer that lowers the time is on
  /// this heap while it does, and heap_changed() clears the time with the last timer.
  void clear_modified_earliest() {
    std::int64_t known = timer_modified_earliest.load(std::memory_order_seq_cst);
    do {
      if (known == 0) return;
      const std::int64_t first = timer0_when.load(std::memory_order_relaxed);
      if (known < first) timer0_when.store(known, std::memory_order_seq_cst);
    } while (!timer_modified_earliest.compare_exchange_weak(known, 0, std::memory_order_seq_cst,
                                                            std::memory_order_seq_cst));
  }

 private:
  void update_timer0_when() {
    const std::int64_t first = heap.empty() ? 0 : heap.front().when;
    // Only the holder of the lock writes it; a store to a line that sleepers read is worth
    // avoiding.
    if (timer0_when.load(std::memory_order_relaxed) != first) {
      timer0_when.store(first, std::memory_order_seq_cst);
    }
  }
};

/// When these timers have to be looked at next; zero if there are none. Needs no lock.
template <class Policy>
std::int64_t next_when(const basic_timers<Policy>& ts) {
  // In this order: what a sweep clears from the first field it has put into the second before.
  const std::int64_t modified = ts.timer_modified_earliest.load(std::memory_order_seq_cst);
  const std::int64_t first = ts.timer0_when.load(std::memory_order_seq_cst);
  if (modified == 0) return first;
  return first == 0 || modified < first ? modified : first;
}

/// Whether stopped timers make up more than a quarter of the heap, so that its own processor should
/// call clear_deleted_timers(). Needs no lock.
template <class Policy>
bool should_clear_deleted(const basic_timers<Policy>& ts) {
  const auto deleted = ts.deleted_timers.load(std::memory_order_relaxed);
  return deleted > static_cast<std::int32_t>(ts.num_timers.load(std::memory_order_relaxed) / 4);
}

}  // namespace verge::detail
