#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <verge/clock.h>
#include <verge/detail/scheduling.h>
#include <verge/duration.h>
#include <verge/runtime.h>
#include <verge/task.h>

#pragma GCC visibility push(default)

/// Simulated time: hours of time-outs in milliseconds, with the same result every time.
///
///   verge::simulation sim;
///   sim.run([]() -> verge::task<> {
///     co_await verge::sleep(24h);                 // takes no time
///   });
///
/// Time stands still while anything can run. When everything is blocked it jumps to the next timer,
/// to the nanosecond. If there is no timer either, that is a deadlock: verge::deadlock is thrown,
/// with what each task waits for, by run() or run_for(), or where no thread is in one of them, by
/// the wait of a thread that takes part. What that waited for is given up, and the simulation can
/// go on.
///
/// One thing runs at a time, and where several could the seed decides which: the same seed gives
/// the same run. Another seed gives another order of all that happens at one instant, which is how
/// a test finds out what depends on it.
///
/// Plain threads take part as well. The thread that makes the simulation does from then on:
/// whatever of verge it calls is the simulation's, and when it waits, time may jump. Further
/// threads come in through thread(), or as a participant.
///
/// For all that takes part verge::clock::now() is the simulated time, so deadlines computed from it
/// are right: reset_at, sleep_until, with_deadline. std::chrono::steady_clock goes on in real time.
///
/// The simulation knows of nothing else. Threads that take no part and real runtimes go on in real
/// time, and time does not wait for them: a wait for what only they will do is a deadlock. So a
/// runtime's run() is refused on a thread that takes part, with std::logic_error; call it on
/// another thread, or simulation::run here.
namespace verge {

/// Everything is blocked and no timer is pending that is ever due: thrown by run() and run_for(),
/// and by waits of plain threads outside of them. what() lists what each task and thread waits for.
/// The default engine knows no time after 73 years on the clock, the others none after 292
/// (docs/engines.md): what is due later never is, and what() says so.
class deadlock : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct simulation_options {
  std::uint64_t seed{1};
  verge::engine engine{verge::engine::hybrid};
  wheel_options wheel{};
  /// Where time begins. No later than the last time that the engine knows: std::invalid_argument.
  clock::time_point start{std::chrono::hours(1)};
  /// Takes exceptions out of callbacks and detached tasks, as a runtime's does.
  std::function<void(std::exception_ptr)> on_exception{};
};

class simulation {
 public:
  /// The calling thread takes part from here on, until the simulation ends. It must not belong to
  /// another simulation or be a runtime's worker: std::logic_error.
  explicit simulation(simulation_options options = {});
  explicit simulation(std::uint64_t seed) : simulation(simulation_options{.seed = seed}) {}
  /// By the thread that made it, when no other takes part any more: otherwise the program stops and
  /// says so. Tasks that are suspended are destroyed, timers that are pending do not fire. A plain
  /// function that is blocked can not be ended: the program stops with a report of what it waits
  /// for. In the child of a fork, where its threads are gone, nothing is done.
  ~simulation();
  simulation(const simulation&) = delete;
  simulation& operator=(const simulation&) = delete;

  /// Runs a task, a callable that returns one, or a plain callable, to its end and gives its
  /// result. Throws verge::deadlock if it can never end, and std::logic_error on a thread that
  /// takes no part.
  template <class F>
  decltype(auto) run(F&& f) {
    auto h = detail::spawn(scheduler_here(), std::forward<F>(f));
    run_until([&] { return h.done(); });
    return h.join();
  }

  /// Lets everything run for so long, in simulated time, and all that is due at the very end as
  /// well. If the end is past that of the clock it throws verge::deadlock once there is nothing
  /// left to do. Throws std::logic_error on a thread that takes no part.
  template <class Rep, class Period>
  void run_for(std::chrono::duration<Rep, Period> d) {
    run_for_nanoseconds(saturate(d).count());
  }

  /// Runs a plain function beside the others, on a thread of its own as far as it can tell. Join it
  /// through the handle: a std::thread's own join() blocks without the simulation knowing.
  template <class F>
  auto thread(F&& f) {
    return detail::spawn(detail::scheduler_of(*this), std::forward<F>(f));
  }

  /// Lets a thread that the code under test has started take part, for as long as this object lives
  /// on it. Its constructor waits for the thread's turn. Until then the simulation does not know of
  /// the thread, and does not wait for it before it moves time.
  class participant {
   public:
    explicit participant(simulation& sim);
    ~participant();
    participant(const participant&) = delete;
    participant& operator=(const participant&) = delete;

   private:
    simulation& sim_;
  };

  clock::time_point now() noexcept;
  /// How often time has jumped.
  std::uint64_t jumps() const noexcept;
  std::uint64_t seed() const noexcept;

 private:
  friend detail::scheduler& detail::scheduler_of(simulation& sim) noexcept;
  void run_until(const std::function<bool()>& done);
  void run_for_nanoseconds(std::int64_t d);
  /// Throws std::logic_error unless the calling thread takes part.
  detail::scheduler& scheduler_here();

  class implementation;
  std::unique_ptr<implementation> it_;
};

}  // namespace verge

#pragma GCC visibility pop
