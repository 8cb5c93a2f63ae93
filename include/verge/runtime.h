// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <verge/detail/lateness.h>
#include <verge/detail/scheduling.h>
#include <verge/stall.h>
#include <verge/task.h>

#pragma GCC visibility push(default)

/// The runtime: processors that run tasks and timers.
///
/// Most programs need none of this. The first timer or `go` starts a default runtime with one
/// processor per core, which ends when the program exits. Create a runtime to choose the number of
/// processors, the engine or the exception handler, or to end it before the program:
///
///   verge::runtime rt{{.processors = 4}};
///   rt.run(serve());                     // runs a task and waits for its result
///
/// Inside a task or callback of a runtime, timers, `go` and sleep use that runtime. Elsewhere they
/// use the default runtime. To choose another one, from any thread, pass it as the first argument
/// to the constructors of timer and ticker, after_func, after, every, tick, sleep, sleep_until, go,
/// with_timeout or with_deadline:
///
///   auto reminder = verge::after_func(rt, 3min, remind);
///   verge::timer t(rt, 30s);
///   verge::go(rt, serve, port).detach();
///   auto [ctx, cancel] = verge::with_timeout(rt, parent, 2s);
///   verge::sleep(rt, 10ms).wait();
///
/// Daemons: fork first, then create the runtime or make the first use of verge. The child of a fork
/// has none of the runtime's threads.
///
///   ::daemon(0, 0);
///   verge::runtime rt;
///   rt.run(serve());
namespace verge::detail {
struct [[gnu::visibility("hidden")]] runtime_core;
}

namespace verge {

/// How timers are stored, see docs/engines.md.
enum class engine : std::uint8_t {
  global_heap,     ///< one heap, one lock, one timer thread: Go up to 1.9
  sharded_heap,    ///< sixty-four of them: Go 1.10 to 1.13
  processor_heap,  ///< a heap per processor, the ten-state machine: Go 1.14 to 1.22
  simple_wheel,    ///< a ring of buckets with a tick and a span
  timing_wheel,    ///< wheels of wheels with a delay queue: Kafka's
  hybrid,          ///< a wheel and a small heap per processor, no lock to stop: the default
};

/// All engines.
std::span<const engine> engines() noexcept;
/// The name of an engine, such as "processor_heap".
std::string_view name_of(engine e) noexcept;
/// The engine with that name. Throws std::invalid_argument, listing the known names.
engine engine_named(std::string_view name);

/// The shape of a wheel, for the two wheel engines. 0 means the engine's default: 65,536 ticks of 1
/// ms for the simple wheel, 20 of 1 ms for the timing wheel, as in Kafka. A timer fires at the
/// first tick that is not before its time. `tick` is 1 us to 1 h, `size` 2 to 2^24.
struct wheel_options {
  std::chrono::nanoseconds tick{0};  ///< how long a bucket lasts
  std::size_t size{0};               ///< how many buckets a wheel has
};

/// How a runtime is made.
struct runtime_options {
  /// How many tasks run concurrently, 1 to 256. 0 means one per core that the process may use: the
  /// least of the cores online, the affinity mask of the calling thread (taskset), and the quota of
  /// its control groups (cpu.max, rounded up).
  unsigned processors{0};
  /// Where timers wait and which thread fires them.
  verge::engine engine{verge::engine::hybrid};
  /// The shape of the wheel, for the two wheel engines.
  wheel_options wheel{};
  /// Receives exceptions from callbacks and detached tasks, on the thread where they were thrown.
  /// The default prints the exception and terminates the program.
  std::function<void(std::exception_ptr)> on_exception{};
  /// What its threads are called in top and gdb: NAME/w0, NAME/monitor. It is cut off after seven
  /// characters.
  std::string name{"verge"};
  /// A callback, or a turn of a task, that holds its processor for longer than this is a stall
  /// (verge/stall.h); 0 for none. It is found within some 10 ms.
  std::chrono::nanoseconds stall_after{std::chrono::milliseconds{100}};
  /// Receives each stall once, while it lasts, one a second at most, with a backtrace. It is called
  /// on the monitor's thread, which has to look after the timers: it must not wait for anything.
  std::function<void(const stall&)> on_stall{};
  /// A priority of SCHED_FIFO, 1 to 99, for the thread that sleeps until the next timer and for the
  /// monitor; 0 for none. On a busy machine timers are then nearly as exact as on an idle one. The
  /// first callback after such a sleep begins at that priority, and becomes an ordinary one if it
  /// takes longer than a millisecond or so; everything else runs at ordinary priority. The process
  /// must have the right (CAP_SYS_NICE, or an RLIMIT_RTPRIO of that priority); if it has not,
  /// everything works as without, and runtime_stats::realtime_error says so.
  int realtime{0};
  /// Gives timers that have a delay of 100 us or more and no slack some of their own: an eighth of
  /// the delay, at most 4 ms. They fire together where possible, which saves wake-ups and processor
  /// time where there are many. Tickers, precise timers and timers with a time point in place of a
  /// delay are not affected.
  bool coalesce{false};
};

/// The figures of one processor since the runtime was created.
struct processor_stats {
  std::uint64_t timers_live{0};     ///< pending
  std::uint64_t timers_deleted{0};  ///< stopped, and still in the queue
  std::uint64_t timers_fired{0};    ///< fired by this processor, also for others
  std::uint64_t timers_stolen{0};   ///< those of them that belonged to another processor
  std::uint64_t tasks_run{0};       ///< how often a task or callback was run or resumed
  std::uint64_t tasks_queued{0};    ///< waiting to run
  std::uint64_t tasks_stolen{0};    ///< how often it took ready ones from another's queue
  std::uint64_t wakeups{0};         ///< how often a thread was woken for it
  /// How long a thread has held it: to run something, or to look for something to run.
  std::chrono::nanoseconds busy{0};
  lateness_histogram lateness;  ///< how late the timers fired
  /// How long callbacks and turns of tasks take. While it is busy one in 17 is measured, and
  /// stands for 17.
  duration_histogram turns;
  /// How long what is ready waits in a queue until it runs: a sample.
  duration_histogram ready_waits;
};

/// The timers of one label that were made in one place.
struct label_stats {
  std::string label;  ///< timer_options::label; empty if there is none
  /// Where they were made, "shop.cc:42 shop::remind"; or what they are, "deadline of a descriptor".
  std::string place;
  std::uint64_t pending{0};  ///< about so many: of a sample, and with the default engine only
  std::uint64_t fired{0};    ///< since the runtime was created
};

/// What limits the default number of processors, as found when the runtime was created.
struct processor_limits {
  unsigned online{0};    ///< cores of the machine
  unsigned affinity{0};  ///< those that the creating thread may run on
  unsigned cgroup{0};    ///< processors' worth of the control groups' quota; 0 is no limit
};

/// Which limit decided, or `option` if the number was given.
enum class processors_from : std::uint8_t {
  option,    ///< runtime_options::processors
  online,    ///< the cores of the machine
  affinity,  ///< the affinity mask of the creating thread
  cgroup,    ///< the quota of its control groups
};

/// The figures of a runtime since it was created.
struct runtime_stats {
  std::vector<processor_stats> processors;              ///< of each
  processors_from taken_from{processors_from::option};  ///< what decided their number
  processor_limits limits;                              ///< all 0 if the runtime was given a number
  processor_stats total;  ///< including timers fired outside any processor
  /// Any thread may start, stop and reset a timer, so these have no processor. A timer that is
  /// reset while it is not pending counts as started: those that are pending are started - stopped
  /// - fired, of one-shot timers.
  std::uint64_t timers_started{0};
  std::uint64_t timers_stopped{0};   ///< while they were pending, by stop() or their handle's end
  std::uint64_t timers_reset{0};     ///< while they were pending
  std::uint64_t tasks_started{0};    ///< with go and spawn
  std::uint64_t tasks_live{0};       ///< those of them that have not ended
  std::uint64_t tasks_waiting{0};    ///< live, and neither ready nor running: about so many
  std::uint64_t poll_breaks{0};      ///< how often the poller was woken for an earlier timer
  std::uint64_t polls{0};            ///< how often a thread slept in the poller
  std::uint64_t monitor_wakeups{0};  ///< how often the system monitor ran
  std::uint64_t poll_rescues{0};     ///< how often it woke a poller sleeping past a timer
  std::uint64_t spare_used{0};       ///< how often a spare processor started, as all were stuck
  std::uint64_t stalls{0};           ///< turns longer than runtime_options::stall_after
  std::chrono::nanoseconds longest_stall{0};  ///< so far, to within some 10 ms
  std::uint64_t threads{0};                   ///< worker threads started; they end with the runtime
  std::size_t timer_bytes{0};                 ///< memory held for timers: nodes and queues
  /// How long threads have waited awake for precise timers.
  std::chrono::nanoseconds precise_waits{0};
  /// By how much such a thread wakes earlier than the timer at present.
  std::chrono::nanoseconds precise_lead{0};
  /// Timers by label and place: a hundred of them at most, those first that there were first in the
  /// process, and then one for all others.
  std::vector<label_stats> labels;
  bool realtime{false};   ///< a thread has got the priority of runtime_options::realtime
  int realtime_error{0};  ///< the errno with which the system refused it; 0 if it did not
};

/// Processors, their threads and their timers. Every function may be called from any thread.
class runtime {
 public:
  /// Throws std::invalid_argument for a number of processors or a priority out of range, and
  /// std::system_error if threads or descriptors cannot be created.
  explicit runtime(runtime_options options = {});
  /// Waits for running tasks and callbacks. Suspended tasks are destroyed; pending timers do not
  /// fire. Other threads may stop, reset and destroy its timers concurrently; nothing else of it
  /// may be in use. One of its own tasks or callbacks may destroy it and then runs to its end.
  ~runtime();
  runtime(const runtime&) = delete;
  runtime& operator=(const runtime&) = delete;

  /// Runs a task, a callable that returns one, or a plain callable, and waits for it to end.
  /// Returns its result or rethrows its exception. Must not be called inside a task of this
  /// runtime: use co_await there. Throws std::logic_error on a thread that takes part in a
  /// simulation, whose time would not wait for it.
  template <class F>
  decltype(auto) run(F&& f) {
    return detail::spawn(scheduler_to_wait_for(), std::forward<F>(f)).join();
  }

  /// Starts a task without waiting. See verge::go.
  template <class F>
  auto spawn(F&& f) {
    return detail::spawn(detail::scheduler_of(*this), std::forward<F>(f));
  }

  /// Changes the number of processors, 1 to 256, without stopping anything. A processor that is
  /// running a task is removed when the task suspends or ends.
  void set_processors(unsigned n);
  /// The number of processors.
  unsigned processors() const noexcept;

  /// What has happened so far.
  runtime_stats stats() const;

 private:
  friend detail::scheduler& detail::scheduler_of(runtime& rt) noexcept;
  /// Throws if the calling thread must not wait for this runtime.
  detail::scheduler& scheduler_to_wait_for();

  detail::runtime_core* core_;
};

/// The runtime of everything that is started outside any other. It is created on first use and
/// ends, even with timers pending, when any thread calls exit() or main() returns: from then on no
/// callback begins and no task resumes. Running ones have a second to end. Other threads may still
/// use timers, which no longer fire.
///
/// The child of a fork has only the thread that forked, so everything pending is lost: old timers
/// never fire there, stop() returns false and reset() throws. The first use of the default runtime
/// in the child creates a new one, also in a task or callback that forks. In the child, such a task
/// or callback must neither return nor suspend, since its thread is no longer a worker: it must end
/// in exec or _exit.
///
/// A runtime created before a fork, including one reached through a saved reference to the default
/// runtime, is unusable in the child: run(), spawn(), set_processors() and stats() throw
/// std::logic_error at once, and so does joining a task that had not ended. Destroying the runtime
/// does nothing.
runtime& default_runtime();

/// How the default runtime is made, when it is first used: `on_stall`, for instance. Call it in
/// main(), before the first timer or task. Throws std::logic_error if that is too late.
void set_default_runtime_options(runtime_options options);

/// Calls f, which is known to block (a disk read, a lock held for long), while another thread runs
/// the processor's tasks. On a thread that is not a worker it only calls f.
template <class F>
decltype(auto) blocking(F&& f) {
  struct scope {
    detail::scheduler* s = detail::current_scheduler();
    scope() {
      if (s != nullptr) s->enter_blocking();
    }
    ~scope() {
      if (s != nullptr) s->leave_blocking();
    }
    scope(const scope&) = delete;
    scope& operator=(const scope&) = delete;
  } around;
  return std::forward<F>(f)();
}

}  // namespace verge

#pragma GCC visibility pop
