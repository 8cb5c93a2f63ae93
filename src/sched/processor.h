// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include <base/counting.h>
#include <base/futex.h>
#include <base/trace_log.h>
#include <base/xorshift.h>
#include <sched/name_counts.h>
#include <sched/realtime.h>
#include <sched/run_queue.h>
#include <verge/detail/lateness.h>

/// Processors and workers: the P and the M of the scheduler.
///
/// A processor is the right to run tasks, and what comes with it: a run queue, the place of its
/// timers in the engine, its figures. A worker is a thread; it runs tasks only while it holds a
/// processor.
///
/// Ground rules
///  - Fields that are "the holder's" are touched only by the worker that holds the processor. It is
///    handed over under the scheduler's lock, or by the note that wakes the next holder.
///  - Atomic fields say which thread writes them. All are relaxed unless said otherwise: they are
///    figures and hints.
namespace verge::detail {

class live_scheduler;
struct job;
struct worker;

/// A figure that one thread counts and any thread may read.
class counter {
 public:
  void add(std::uint64_t n = 1) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  std::uint64_t read() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

struct alignas(128) processor {
  /// Throws std::bad_alloc.
  explicit processor(unsigned number, std::uint64_t seed) : id(number), random(seed) {}

  const unsigned id;

  /// The processor is to be retired. Set under the scheduler's lock, and seen by its worker.
  std::atomic<bool> retiring{false};
  /// Not in use: more than set_processors() wants, or not yet taken into use. Written under the
  /// scheduler's lock.
  std::atomic<bool> retired{false};
  /// How often its worker has looked for something to run. It tells the monitor which are stuck.
  std::atomic<std::uint32_t> tick{0};

  /// Its holder fires timers now; no worker is woken for what they make ready until all have fired.
  /// Written by the holder.
  std::atomic<bool> firing{false};

  run_queue queue;
  /// When its holder last fired timers. The holder's.
  std::int64_t fired_at{0};
  /// More of its timers are overdue, and the callbacks of the last ones were so short that what is
  /// queued will have run before another worker could help. Written by the holder whenever it looks
  /// at its timers.
  std::atomic<bool> brief{false};
  /// Of a spare one: how often others had come back when it came up. The holder's.
  std::uint32_t returns_seen{0};
  /// Of a spare one: the thread that runs its tasks. The monitor asks the kernel what that does.
  std::atomic<pid_t> thread{0};
  /// Of a spare one: it may begin new tasks, until it rests. The holder's, written under the lock.
  bool begins_tasks{false};
  /// A task has yielded: what waits elsewhere comes first. The holder's.
  bool yielded{false};
  /// How many in a row came from the slot that runs next. The holder's.
  unsigned next_streak{0};
  /// When its holder last saw that it waits awake for a precise timer; 0 if it does not. The
  /// holder's.
  std::int64_t awake_since{0};
  /// Since when a worker holds it, 0 if none does, and how long others have before: guarded by the
  /// scheduler's lock.
  std::int64_t held_since{0};
  std::int64_t held_before{0};
  /// Since when it was idle before that; 0 once a trace has it.
  std::int64_t idle_since{0};
  /// One place in the queue, and when something was put there, to measure how long it waits; 0 if
  /// none is watched. The holder's.
  std::uint32_t watched_place{0};
  std::int64_t watched_since{0};
  /// For choosing which processor to steal from. The holder's.
  xorshift random;

  /// Figures, counted by the holder.
  counter tasks_run;
  counter timers_fired;
  counter timers_stolen;
  counter tasks_stolen;
  counter wakeups;
  counter waited_awake;  ///< for precise timers, in nanoseconds
  name_counts fired_by_name;
  lateness_histogram::recorder lateness;
  duration_histogram::recorder turns;
  duration_histogram::recorder ready_waits;
  /// Some of what it ran lately: what was measured for `turns`.
  trace_ring samples{256};
  /// Where a trace records what it does; null if there is none. Set by any thread. And the ring,
  /// which is kept when the trace has ended.
  std::atomic<trace_ring*> traced{nullptr};
  std::unique_ptr<trace_ring> ring;

  /// The holder's.
  std::uint32_t count_look() noexcept {
    const std::uint32_t now = tick.load(std::memory_order_relaxed) + 1;
    tick.store(now, std::memory_order_relaxed);
    return now;
  }
};

struct worker {
  explicit worker(live_scheduler& s) noexcept : home(s) {}

  live_scheduler& home;
  processor* held{nullptr};
  /// The processor that the thread that wakes this worker gives it, written before the note is
  /// left.
  processor* given{nullptr};
  bool spinning{false};
  /// The processor that it has watched, since timers of it were due, and its tick at that time.
  const processor* watched{nullptr};
  std::uint32_t watched_at{0};
  /// When it last looked for something to steal, it left these timers to their processor's holder,
  /// and maybe what they have made ready.
  bool leaves_timers{false};
  /// After what time it looks again then, in nanoseconds.
  std::int64_t look_again{0};
  processor* before_blocking{nullptr};
  /// The last task that ran while no thread polled was slow.
  bool ran_long{false};
  realtime::state priority;
  /// The job whose code may be on its stack: from the beginning of a piece of it until that has
  /// returned.
  std::atomic<const job*> inside{nullptr};
  /// Counts the turns that it begins and ends: odd while it runs something with a processor of its
  /// own. Written by its thread. What the monitor has seen of it is the monitor's (stall_watch.h).
  std::atomic<std::uint32_t> turn{0};
  struct {
    std::uint32_t turn{0};
    std::int64_t since{0};
    bool counted{false};
  } seen;
  /// What its turn is, if that is measured or traced: filled in by the task that runs
  /// (set_current_job) if `notes`. Its own; the time is 0 if no turn is under way.
  bool notes{false};
  trace_event ran;
  /// Its thread can be asked what it does (thread_probe.h). Its own.
  bool listens{false};
  note parked;
  std::atomic<pid_t> thread_id{0};  ///< written by its thread
  worker* next_idle{nullptr};
  /// For a thread that waits until nothing runs any more: the worker has returned from all that it
  /// ran, or waits itself, maybe forever.
  std::atomic<bool> ended{false};
  std::atomic<bool> waits{false};
  std::thread thread;

  /// By its thread.
  void begin_turn() noexcept { count_turn(1); }
  void end_turn() noexcept { count_turn(0); }

 private:
  void count_turn(std::uint32_t parity) noexcept {
    if constexpr (!counting) return;
    const std::uint32_t now = turn.load(std::memory_order_relaxed);
    if (now % 2 != parity) turn.store(now + 1, std::memory_order_relaxed);
  }
};

}  // namespace verge::detail
