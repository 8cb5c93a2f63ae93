// SPDX-License-Identifier: Apache-2.0
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

/// Simulated time: hours of time-outs in milliseconds, with the same result on every run.
///
///   verge::simulation sim;
///   sim.run([]() -> verge::task<> {
///     co_await verge::sleep(24h);                 // takes no real time
///   });
///
/// Time does not advance while anything can run. When everything is blocked, it jumps to the next
/// timer, exact to the nanosecond. If there is no timer either, that is a deadlock: run() or
/// run_for() throws verge::deadlock, which lists what each task waits for; if no thread is inside
/// one of them, the wait of a participating thread throws it. That wait is given up, and the
/// simulation can continue.
///
/// One thread or task runs at a time. If several could, the seed decides: the same seed gives the
/// same run. Another seed gives another order of simultaneous events, so that a test can find code
/// that depends on it.
///
/// Plain threads can take part. The thread that creates the simulation does: its calls to verge use
/// the simulation, and when it waits, time may jump. Other threads take part through thread() or a
/// participant.
///
/// For all participants verge::clock::now() is the simulated time, so deadlines computed from it
/// are correct: reset_at, sleep_until, with_deadline. std::chrono::steady_clock remains real time.
///
/// Threads that do not take part, and runtimes, continue in real time, and simulated time does not
/// wait for them: a wait for something that only they can do is a deadlock. So runtime::run()
/// throws std::logic_error on a thread that takes part; call it on another thread, or use
/// simulation::run.
namespace verge {

/// Everything is blocked and no timer is pending that can become due. Thrown by run() and
/// run_for(), and by waits of plain threads outside them. what() lists what each task and thread
/// waits for. The default engine represents times up to 73 years on the clock, the others up to 292
/// (docs/engines.md): a later timer is never due, and what() says so.
class deadlock : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// How a simulation is made.
struct simulation_options {
  /// Decides the order in which ready tasks run; the same seed gives the same run.
  std::uint64_t seed{1};
  /// Where timers wait.
  verge::engine engine{verge::engine::hybrid};
  /// The shape of the wheel, for the two wheel engines.
  wheel_options wheel{};
  /// The initial time. Throws std::invalid_argument if it is after the engine's last time.
  clock::time_point start{std::chrono::hours(1)};
  /// Receives exceptions from callbacks and detached tasks, as in runtime_options.
  std::function<void(std::exception_ptr)> on_exception{};
};

/// A world with a time of its own, and the tasks, timers and threads in it.
class simulation {
 public:
  /// The calling thread takes part until the simulation is destroyed. Throws std::logic_error if it
  /// takes part in another simulation or is a worker of a runtime.
  explicit simulation(simulation_options options = {});
  explicit simulation(std::uint64_t seed) : simulation(simulation_options{.seed = seed}) {}
  /// Must be called by the thread that created it, when no other thread takes part any more:
  /// otherwise the program terminates with a message. Suspended tasks are destroyed; pending timers
  /// do not fire. A blocked plain function cannot be ended: the program terminates and reports what
  /// it waits for. In the child of a fork, which does not have its threads, it does nothing.
  ~simulation();
  simulation(const simulation&) = delete;
  simulation& operator=(const simulation&) = delete;

  /// Runs a task, a callable that returns one, or a plain callable, and returns its result. Throws
  /// verge::deadlock if it can never end, and std::logic_error on a thread that does not take part.
  template <class F>
  decltype(auto) run(F&& f) {
    auto h = detail::spawn(scheduler_here(), std::forward<F>(f));
    run_until([&] { return h.done(); });
    return h.join();
  }

  /// Runs everything for `d` of simulated time, including what is due at its very end. If that is
  /// past the end of the clock, throws verge::deadlock once nothing is left to do. Throws
  /// std::logic_error on a thread that does not take part.
  template <class Rep, class Period>
  void run_for(std::chrono::duration<Rep, Period> d) {
    run_for_nanoseconds(saturate(d).count());
  }

  /// Runs a plain function as if on a separate thread. Join it through the handle:
  /// std::thread::join() blocks without the simulation knowing.
  template <class F>
  auto thread(F&& f) {
    return detail::spawn(detail::scheduler_of(*this), std::forward<F>(f));
  }

  /// Makes the calling thread, started by the code under test, take part for the lifetime of this
  /// object. The constructor waits for the thread's turn. Until it is called, the simulation does
  /// not wait for the thread before it moves time.
  class participant {
   public:
    /// Waits for the turn of the calling thread.
    explicit participant(simulation& sim);
    ~participant();
    participant(const participant&) = delete;
    participant& operator=(const participant&) = delete;

   private:
    simulation& sim_;
  };

  /// The simulated time.
  clock::time_point now() noexcept;
  /// The number of times that time has jumped.
  std::uint64_t jumps() const noexcept;
  /// The seed that it was made with.
  std::uint64_t seed() const noexcept;

 private:
  friend detail::scheduler& detail::scheduler_of(simulation& sim) noexcept;
  void run_until(const std::function<bool()>& done);
  void run_for_nanoseconds(std::int64_t d);
  /// Throws std::logic_error if the calling thread does not take part.
  detail::scheduler& scheduler_here();

  class implementation;
  std::unique_ptr<implementation> it_;
};

}  // namespace verge

#pragma GCC visibility pop
