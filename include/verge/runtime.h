#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <verge/detail/lateness.h>
#include <verge/detail/scheduling.h>
#include <verge/task.h>

#pragma GCC visibility push(default)

/// The runtime: processors that run tasks and timers.
///
/// Most programs need none of this. The first timer, the first `go`, starts a default runtime with
/// a processor per core; it ends by itself when the program does. A runtime of one's own is for
/// another number of processors, another engine, a handler for exceptions, or an end that comes
/// before the program's:
///
///   verge::runtime rt{{.processors = 4}};
///   rt.run(serve());                     // runs a task and waits for its result
///
/// Inside a task or a callback of a runtime, everything - timers, `go`, sleep - is that runtime's.
/// Elsewhere it is the default runtime's. To choose another one, from any thread, pass it as the
/// first argument. The constructors of timer and ticker, after_func, after, every, tick, sleep,
/// sleep_until, go, with_timeout and with_deadline take it:
///
///   auto reminder = verge::after_func(rt, 3min, remind);
///   verge::timer t(rt, 30s);
///   verge::go(rt, serve, port).detach();
///   auto [ctx, cancel] = verge::with_timeout(rt, parent, 2s);
///   verge::sleep(rt, 10ms).wait();
///
/// Daemons: become a daemon first, then start the runtime or use anything of verge for the first
/// time. The child of a fork has none of the runtime's threads.
///
///   ::daemon(0, 0);
///   verge::runtime rt;
///   rt.run(serve());
namespace verge::detail {
struct [[gnu::visibility("hidden")]] runtime_core;
}

namespace verge {

/// How timers are kept, see docs/engines.md.
enum class engine : std::uint8_t {
  global_heap,     ///< one heap, one lock, one timer thread: Go up to 1.9
  sharded_heap,    ///< sixty-four of them: Go 1.10 to 1.13
  processor_heap,  ///< a heap per processor, the ten-state machine: Go 1.14 to 1.22
  simple_wheel,    ///< a ring of buckets with a tick and a span
  timing_wheel,    ///< wheels of wheels with a delay queue: Kafka's
  hybrid,          ///< a wheel and a small heap per processor, no lock to stop: the default
};

/// All of them, and what they are called: "processor_heap".
std::span<const engine> engines() noexcept;
std::string_view name_of(engine e) noexcept;
/// The engine of that name. Throws std::invalid_argument with the list of those there are.
engine engine_named(std::string_view name);

/// The shape of a wheel, for the two engines that are one. 0 is the engine's default: 65,536 ticks
/// of 1 ms for the simple wheel, 20 of 1 ms for the timing wheel, as Kafka has it. Timers fire at
/// the first tick that is not before their time. Ticks are from 1 us to 1 h, buckets from 2 to
/// 2^24.
struct wheel_options {
  std::chrono::nanoseconds tick{0};
  std::size_t size{0};
};

struct runtime_options {
  /// How many tasks run at the same time, 1 to 256. 0 is one per core that the process may use: the
  /// cores that are online, those in the affinity mask of the calling thread (taskset), or what the
  /// quota of its control groups allows (cpu.max, rounded up), whichever is least.
  unsigned processors{0};
  verge::engine engine{verge::engine::hybrid};
  wheel_options wheel{};
  /// Takes exceptions out of callbacks and detached tasks, on the thread where they come up. The
  /// default prints what it can about it and terminates the program.
  std::function<void(std::exception_ptr)> on_exception{};
};

/// The figures of one processor since the runtime began.
struct processor_stats {
  std::uint64_t timers_live{0};     ///< waiting to fire
  std::uint64_t timers_deleted{0};  ///< stopped, and still in the queue
  std::uint64_t timers_fired{0};    ///< run by this processor, also on behalf of others
  std::uint64_t timers_stolen{0};   ///< those of them that were another processor's
  std::uint64_t tasks_run{0};       ///< how often a task or callback was taken up
  std::uint64_t tasks_queued{0};    ///< waiting to run
  std::uint64_t wakeups{0};         ///< how often a thread was woken for it
  lateness_histogram lateness;      ///< how late the timers it fired were
};

/// What limits the default number of processors, as found when the runtime was made.
struct processor_limits {
  unsigned online{0};    ///< cores of the machine
  unsigned affinity{0};  ///< those that the thread which made the runtime may run on
  unsigned cgroup{0};    ///< processors' worth of the control groups' quota; 0 is no limit
};

/// Which of them decided, or that the number was asked for.
enum class processors_from : std::uint8_t { option, online, affinity, cgroup };

struct runtime_stats {
  std::vector<processor_stats> processors;
  processors_from taken_from{processors_from::option};  ///< how their number came about
  processor_limits limits;                              ///< all 0 if the runtime was given a number
  processor_stats total;             ///< with what was fired outside of any processor
  std::uint64_t poll_breaks{0};      ///< how often the poller was woken for an earlier timer
  std::uint64_t polls{0};            ///< how often a thread slept in the poller
  std::uint64_t monitor_wakeups{0};  ///< how often the system monitor looked
  std::uint64_t poll_rescues{0};     ///< how often it woke a poller that slept past a timer
  std::uint64_t spare_used{0};       ///< how often a spare processor came up, as all were stuck
  std::uint64_t threads{0};          ///< worker threads started
  std::size_t timer_bytes{0};        ///< memory held for timers: nodes and queues
};

class runtime {
 public:
  /// Throws std::invalid_argument for a number of processors that is out of range, and
  /// std::system_error if threads or descriptors cannot be had.
  explicit runtime(runtime_options options = {});
  /// Waits for the tasks and callbacks that are running. Those that are suspended are destroyed,
  /// timers that are pending do not fire. Other threads may be stopping, resetting and destroying
  /// timers of it meanwhile; nothing else of it may be in use. One of its own tasks or callbacks
  /// may end it: then that one goes on to its end.
  ~runtime();
  runtime(const runtime&) = delete;
  runtime& operator=(const runtime&) = delete;

  /// Runs a task, a callable that returns one, or a plain callable, and waits for it to end. Gives
  /// its result or rethrows its exception. Not from inside a task of this runtime: co_await there.
  /// Nor on a thread that takes part in a simulation, which does not know of what happens in real
  /// time: std::logic_error.
  template <class F>
  decltype(auto) run(F&& f) {
    return detail::spawn(scheduler_to_wait_for(), std::forward<F>(f)).join();
  }

  /// Starts a task and does not wait. See verge::go.
  template <class F>
  auto spawn(F&& f) {
    return detail::spawn(detail::scheduler_of(*this), std::forward<F>(f));
  }

  /// Changes the number of processors, 1 to 256, while everything runs on. A processor that is in
  /// the middle of a task is given up when the task suspends or ends.
  void set_processors(unsigned n);
  unsigned processors() const noexcept;

  runtime_stats stats() const;

 private:
  friend detail::scheduler& detail::scheduler_of(runtime& rt) noexcept;
  /// Throws if the calling thread could not wait for anything of it.
  detail::scheduler& scheduler_to_wait_for();

  detail::runtime_core* core_;
};

/// The runtime of everything that is started outside of any other. It begins with its first use and
/// ends, with timers still pending, when the program calls exit() or returns from main(), on any
/// thread: no callback begins and no task goes on from then. Those that run have a second to end.
/// Other threads may go on using timers, which do not fire any more.
///
/// In the child of a fork there are no threads but the one that forked, so all that was pending is
/// lost: old timers never fire there, stop() says false and reset() throws. The first use of the
/// default runtime in the child starts a new one. That holds in a task or callback that forks as
/// well; but the thread that it would return or suspend to is no worker any more, so in the child
/// it must do neither: let it end in exec or _exit.
///
/// Every runtime of before a fork, a kept reference to the default one included, is unusable in the
/// child: run(), spawn(), set_processors() and stats() throw std::logic_error at once, and so does
/// joining a task that had not ended. Destroying the runtime does nothing.
runtime& default_runtime();

/// Calls f, which is known to block - a read from a disk, a lock held for long - and lets another
/// thread run the processor's tasks meanwhile. On a thread that is no worker it just calls f.
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
