#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>

#include <base/futex.h>
#include <sched/run_queue.h>
#include <verge/detail/lateness.h>

/// Processors and workers: the P and the M of the scheduler.
///
/// A processor is the right to run tasks and the things that go with it: a run queue, the place of
/// its timers in the engine, its figures. A worker is a thread; it runs tasks only while it holds
/// a processor.
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
  explicit processor(unsigned number, std::uint64_t seed) noexcept
      : id(number), random_state(seed | 1) {}

  const unsigned id;

  /// Set under the scheduler's lock when the processor is to be given up; seen by its worker.
  std::atomic<bool> retiring{false};
  /// Not in use: given up, or not yet taken into use. Written under the scheduler's lock.
  std::atomic<bool> retired{false};
  /// How often its worker has looked for something to run. The monitor sees by it who is stuck.
  std::atomic<std::uint32_t> tick{0};

  run_queue queue;
  /// A spare one's: how often others had come back when it came up. The holder's.
  std::uint32_t returns_seen{0};
  /// A spare one's: the thread that runs its tasks. The monitor looks what that does.
  std::atomic<pid_t> thread{0};
  /// A spare one's: it may begin new tasks, until it rests. The holder's, written with the lock.
  bool begins_tasks{false};
  /// A task has yielded: whatever waits elsewhere has its turn first. The holder's.
  bool yielded{false};
  /// How many in a row came from the slot that runs next. The holder's.
  unsigned next_streak{0};
  /// For choosing whom to steal from. The holder's.
  std::uint64_t random_state;

  /// Figures, counted by the holder.
  counter tasks_run;
  counter timers_fired;
  counter timers_stolen;
  counter wakeups;
  lateness_histogram::recorder lateness;

  /// The holder's.
  std::uint32_t count_look() noexcept {
    const std::uint32_t now = tick.load(std::memory_order_relaxed) + 1;
    tick.store(now, std::memory_order_relaxed);
    return now;
  }

  std::uint64_t random() noexcept {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
  }
};

struct worker {
  explicit worker(live_scheduler& s) noexcept : home(s) {}

  live_scheduler& home;
  processor* held{nullptr};
  /// The processor that whoever wakes this worker gives it, written before the note is left.
  processor* given{nullptr};
  bool spinning{false};
  /// Runs timers now; what they make ready is looked at when all that were due are done.
  bool firing{false};
  processor* before_blocking{nullptr};
  /// What it ran last while nobody was at the poller took long.
  bool ran_long{false};
  /// The job whose code may be on its stack: from when it begins a piece of it until what it runs
  /// has returned.
  std::atomic<const job*> inside{nullptr};
  note parked;
  pid_t thread_id{0};
  worker* next_idle{nullptr};
  /// For one who waits until nothing runs any more: its thread is past all that it ran, or waits
  /// itself for what may never come.
  std::atomic<bool> ended{false};
  std::atomic<bool> waits{false};
  std::thread thread;
};

}  // namespace verge::detail
