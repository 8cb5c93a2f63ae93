// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <engine/engine.h>
#include <net/poller.h>
#include <sched/foreign_figures.h>
#include <sched/global_queue.h>
#include <sched/idle_set.h>
#include <sched/job_list.h>
#include <sched/monitor.h>
#include <sched/poll_turn.h>
#include <sched/processor_set.h>
#include <sched/progress_watch.h>
#include <sched/realtime.h>
#include <sched/spare_processors.h>
#include <sched/stall_watch.h>
#include <sched/wake_up_lag.h>
#include <verge/detail/scheduling.h>

/// The scheduler in real time: processors, workers, the poller and the monitor.
///
/// A worker that holds a processor looks for something to run in this order: the processor's
/// timers, its run queue, the global queue, the poller without blocking, other processors' queues
/// and in the last round their timers. If there is nothing it gives the processor up, and either
/// blocks in the poller until the earliest timer of all, or parks if another worker polls already.
///
/// The parts, each with its own rules: processor_set.h, global_queue.h, idle_set.h, poll_turn.h,
/// monitor.h, progress_watch.h, spare_processors.h, job_list.h. What the scheduler does with them:
/// schedule.cc (what to run next), turns.cc (turns that are measured and traced), ready.cc (what
/// has become ready, and which worker to wake for it), workers.cc (threads, and the processors they
/// hold), resize.cc (the number of processors), end.cc (how it ends), sysmon.cc (what the monitor
/// looks at), spares.cc (what runs while all processors are stuck), live_scheduler.cc (the rest).
///
/// Ground rules
///  - `lock_` guards the lists of workers and whatever the parts say it guards. It is never held
///    while a timers' lock is taken (Go #35375), a task runs, or a system call other than that of a
///    contended mutex is made.
///  - A processor is held by one worker, or idle, or retired, or it is a spare one at rest. Only
///    its holder touches the fields that processor.h assigns to the holder.
///  - No wake-up is lost. A thread that makes something ready first puts it on a queue, then looks
///    whether a processor is idle and no worker spins. A worker that stops looking first puts its
///    processor among the idle ones and stops spinning, then looks once more at every queue. A full
///    fence stands between the two steps on both sides, so at least one of them sees the other.
///  - No timer is slept past: poll_turn.h.
///  - No thread relies on a wake-up that another has announced and not yet made, for longer than a
///    few milliseconds: the other may have lost its core. A thread that finds a break announced
///    writes one itself (poller.h), one that relies on a spinning worker tells the monitor
///    (idle_set.h), and one that starts a timer looks at the sleeper even if another timer comes
///    first (engine_host::sleeps_past). A thread that loses its core with a lock held delays those
///    that need the lock: locks are held for a few instructions.
///  - Of many overdue timers with short callbacks a worker leaves those of another processor, and
///    what is queued there, to the worker that holds it, as long as that one is seen to look at
///    them. It looks again by itself within 0.4 ms, or the worker that polls does; the monitor sees
///    within a millisecond that a processor no longer comes round.
///  - While a processor is idle and timers exist, a worker polls or spins, or a worker that came
///    from the poller runs something short; if that one stays away the monitor replaces it.
namespace verge::detail {

/// Takes the exceptions that nothing else takes.
using exception_handler = std::function<void(std::exception_ptr)>;

/// Hidden as the poller in it is.
class [[gnu::visibility("hidden")]] live_scheduler;

class live_scheduler final : public scheduler, public engine_host, private monitor::watched {
 public:
  static constexpr unsigned max_processors = processor_set::max_processors;

  live_scheduler(unsigned processors, exception_handler handler, poller::wait_method method,
                 int realtime_priority = 0);
  ~live_scheduler();

  /// Before start(): when a turn is a stall, in nanoseconds, 0 for never; and what is told.
  void watch_stalls(std::int64_t after, stall_watch::handler report) {
    stalls_.set(after, std::move(report));
  }
  /// Before start(): what its threads are called.
  void set_name(std::string name) { name_ = std::move(name); }
  /// The timers must exist before anything is made ready. Starts the monitor.
  void start(clockwork& timers);

  // --- end.cc

  /// Ends all threads, and waits for what they run. What is queued stays queued.
  void stop() noexcept;
  /// The program is about to end: nothing begins to run any more. Waits for what runs, but no
  /// longer than a second, and not for tasks that wait themselves; and leaves everything as it is.
  void halt() noexcept;
  /// Returns when no worker but the calling one is inside the code of j, which has ended.
  void wait_until_left(const job& j) const noexcept;
  /// Whether the worker that stopped the scheduler, from inside a task, has returned from the task.
  bool returned() const noexcept {
    return ended_by_ != nullptr && ended_by_->ended.load(std::memory_order_acquire);
  }
  /// Takes one that is still on a queue, after stop(); nullptr if there is none.
  runnable* take_leftover() noexcept;
  /// Destroys every task that has not ended, after stop().
  void abandon_jobs() noexcept;

  /// Whether the calling thread is one of its workers.
  bool runs_here() const noexcept;
  /// Throws std::logic_error in the child of a fork, where its threads do not exist.
  void refuse_if_lost() const { made_in_.refuse("runtime"); }
  bool lost() const noexcept { return made_in_.lost(); }

  void set_processors(unsigned n);
  unsigned processors() const noexcept { return all_.in_use(); }

  // scheduler
  void ready(runnable& r) noexcept override;
  void ready_next(runnable& r) noexcept override;
  void ready_last(runnable& r) noexcept override;
  std::int64_t now() noexcept override;
  std::uint64_t random() noexcept override;
  void block(thread_waiter& w, const char* waiting_for) noexcept override;
  void unblock(thread_waiter& w) noexcept override;
  void job_started(job& j) override;
  void job_ended(job& j) noexcept override;
  void unhandled(std::exception_ptr e) noexcept override;
  clockwork& timers() noexcept override { return *timers_; }
  std::shared_ptr<poller> net() noexcept override { return shared_poller_; }
  void enter_blocking() noexcept override;
  void leave_blocking() noexcept override;

  // engine_host
  bool simulated() const noexcept override { return false; }
  std::int64_t cheap_now() noexcept override;
  unsigned home_processor() noexcept override;
  void wake_net_poller(std::int64_t when) noexcept override;
  bool sleeps_past(std::int64_t when) const noexcept override { return poll_.until() > when; }
  unsigned firing_room() noexcept override;
  void timer_fired(std::int64_t when, std::int64_t now) noexcept override;
  void count_name(const timer_node& t) noexcept override;
  std::string thread_name(std::string_view role) const override {
    return name_of_thread(name_, role);
  }
  void fire_all(std::span<const firing> due, std::int64_t now) noexcept override;
  static void count_firings(processor& p, std::span<const firing> due, std::int64_t now) noexcept;

  void trace_fired(const timer_node& t, std::int64_t when) noexcept override;

  // --- turns.cc: traces, one at a time.

  /// Begins to record into rings of that size, if there are none yet. Throws std::logic_error if a
  /// trace is under way, and std::bad_alloc.
  void begin_trace(std::size_t size);
  /// Ends it. Calls the first for the number and the ring of each processor, the second for the
  /// ring of operations on timers.
  void end_trace(const std::function<void(unsigned, const trace_ring&)>& of_processor,
                 const std::function<void(const trace_ring&)>& of_operations);

  // Figures, from any thread.
  const processor_set& all_processors() const noexcept { return all_; }
  const foreign_figures& foreign() const noexcept { return foreign_; }
  std::uint64_t workers_started() const noexcept {
    return workers_started_.load(std::memory_order_relaxed);
  }
  std::uint64_t monitor_wakeups() const noexcept { return monitor_.wakeups(); }
  bool monitor_sleeps() const noexcept { return monitor_.asleep(); }
  std::uint64_t spare_used() const noexcept { return spares_.used(); }
  std::uint64_t poll_rescues() const noexcept { return poll_rescues_.read(); }
  /// How early the sleeper aims for a precise timer, in nanoseconds.
  std::int64_t precise_lead() const noexcept { return lead_.load(std::memory_order_relaxed); }
  const realtime& priority() const noexcept { return realtime_; }
  const job_lists& jobs() const noexcept { return jobs_; }
  stall_watch& stalls() noexcept { return stalls_; }
  /// How many of the processors run something, or look for something to run.
  unsigned running() const noexcept { return processors() - std::min(idle_.count(), processors()); }
  /// What each processor in use does, for reports.
  struct processor_state {
    unsigned id;
    bool busy;           ///< a worker holds it
    std::int64_t since;  ///< in its present turn, or if there is none, since it holds it
    std::uint32_t queued;
  };
  std::vector<processor_state> processor_states() const;
  /// How long workers have held p, in nanoseconds.
  std::int64_t held_for(const processor& p) const noexcept;

  /// Until when the worker that polls may sleep; 0 while none does. For tests.
  std::int64_t polls_until() const noexcept { return poll_.until(); }
  /// What the monitor calls. For tests, which take its place if there is none.
  monitor::watched& as_watched() noexcept { return *this; }
  /// Allows fewer spare processors. 0 also silences the warning. For tests.
  void limit_spares(unsigned n) noexcept;

 private:
  /// Every so many looks the global queue and the poller come before the local queue. Prime, so as
  /// not to beat with patterns in what the tasks do.
  static constexpr std::uint32_t global_turn = 61;

  // schedule.cc
  void work(worker& w) noexcept;
  runnable* schedule(worker& w) noexcept;
  void run(worker& w, runnable& r) noexcept;

  // turns.cc
  std::int64_t run_measured(worker& w, runnable& r, std::uint64_t stands_for) noexcept;
  void record_turn(worker& w) noexcept;
  void trace_on(const processor& p, trace_event e) noexcept;
  void trace_spares() noexcept;
  void set_traced_locked(processor& spare) noexcept;

  // schedule.cc
  runnable* find_runnable(worker& w) noexcept;
  runnable* look_everywhere(worker& w) noexcept;
  void stop_spinning_without_work(worker& w) noexcept;
  runnable* take_local(processor& p) noexcept;
  runnable* take_from_queue(processor& p) noexcept;
  runnable* take_global(processor& p) noexcept;
  runnable* take_from_elsewhere(worker& w) noexcept;
  runnable* take_left_behind(processor& p) noexcept;
  runnable* steal(worker& w) noexcept;
  bool steal_timers(processor& mine, unsigned victim) noexcept;
  bool looks_after_timers(unsigned p) noexcept;
  static bool all_brief(processor& holder, const timer_check& c) noexcept;
  bool leaves_queue(unsigned p) noexcept;
  void run_overdue(processor& mine) noexcept;
  runnable* poll_without_blocking(worker& w) noexcept;
  bool forget_stopped_timers() noexcept;
  runnable* block_in_poller(worker& w) noexcept;
  timer_check check_timers(processor& holder, unsigned p) noexcept;
  bool anything_queued(const processor* left = nullptr) const noexcept;
  bool stays_awake(unsigned p, std::int64_t next) noexcept;
  void learn_from_sleep(std::int64_t late) noexcept;
  struct first_timer {
    std::int64_t when;  ///< 0 if there is none
    unsigned of;        ///< the processor it belongs to
  };
  first_timer time_sleep_until(const processor* left = nullptr,
                               std::int64_t look_at = 0) const noexcept;

  // ready.cc
  worker* worker_with_processor() noexcept;
  void push_local(processor& p, runnable& r) noexcept;
  void push_local(processor& p, ready_list& list) noexcept;
  void push_global(ready_list&& list) noexcept;
  void inject(ready_list&& list) noexcept;
  bool wake_processor() noexcept;

  // workers.cc

  /// lock_, held where an idle processor may be taken. That may be a reason to wake the monitor,
  /// which is a system call, and is made once the lock is released.
  class taking_lock {
   public:
    explicit taking_lock(live_scheduler& s) noexcept : of_(s), held_(s.lock_) {}
    ~taking_lock() {
      if (held_.owns_lock()) unlock();
      if (call_) of_.monitor_.wake();
    }
    taking_lock(const taking_lock&) = delete;
    taking_lock& operator=(const taking_lock&) = delete;
    void unlock() noexcept {
      call_ = of_.monitor_.take_call_locked();
      held_.unlock();
    }

   private:
    live_scheduler& of_;
    std::unique_lock<std::mutex> held_;
    bool call_{false};
  };

  bool start_worker(processor* p, bool spinning) noexcept;
  bool park(worker& w) noexcept;
  void woke(worker& w, std::int64_t now) noexcept;
  bool acquire_or_park(worker& w) noexcept;
  bool anything_stealable() const noexcept;
  void stop_spinning(worker& w) noexcept;
  processor* take_idle_locked() noexcept;
  processor* take_idle_locked(processor& p) noexcept;
  processor* take_idle_or_spare(unsigned preferred) noexcept;
  void put_idle_locked(processor& p) noexcept;
  void count_held_locked(processor& p) noexcept;
  void give_up_locked(worker& w) noexcept;
  void hand_off(worker& w) noexcept;
  void regain(worker& w, processor* last) noexcept;

  // resize.cc
  void give_up_with_queue(worker& w) noexcept;

  // end.cc
  bool any_worker_runs() const noexcept;
  void wait_forever_if_halted(worker& w) noexcept;

  // sysmon.cc
  void monitor_begins() noexcept override;
  void trim_memory() noexcept override;
  bool can_trim_memory() const noexcept override;
  void prepare_memory() noexcept override;
  bool stopping() const noexcept override { return stopping_.load(std::memory_order_acquire); }
  bool sysmon_look(std::int64_t now) noexcept override;
  std::int64_t look_by() const noexcept override { return look_by_; }
  struct waiting_work {
    first_timer next;
    bool queued;  ///< something is
    bool left;    ///< something else is left to processors that come round
  };
  waiting_work look_for_work(std::int64_t now) noexcept;
  bool comes_round(const processor& p, std::int64_t now) noexcept;
  bool spinning_is_stuck(std::int64_t now) noexcept;
  void look_at_stalls(std::int64_t now) noexcept;
  bool all_idle() const noexcept override { return idle_.count() >= processors(); }
  bool allows_deep_sleep() noexcept override;
  void sysmon_woke(std::int64_t now) noexcept override { progress_.queue_is_well(now); }
  stuckness look_at_global_queue(std::int64_t now, bool came_round) noexcept;

  // spares.cc
  runnable* look_as_spare(processor& p) noexcept;
  static bool looks_at_timers(const processor& p) noexcept;
  runnable* take_as_spare(const processor& p) noexcept;
  runnable* rescue(processor& p) noexcept;
  processor* take_spare_locked() noexcept;
  bool bring_up_spare(stuckness how, std::int64_t now) noexcept;
  bool others_came_back(const processor& spare) const noexcept;
  static bool is_spare(const processor& p) noexcept { return processor_set::is_spare(p); }

  const process_mark made_in_;
  exception_handler handler_;
  clockwork* timers_{nullptr};
  timer_engine* engine_{nullptr};
  /// Shared with descriptors, which may outlive the scheduler.
  const std::shared_ptr<poller> shared_poller_;
  poller& poller_;

  /// One change of the number of processors at a time. Taken before lock_.
  std::mutex resize_lock_;

  // --- Guarded by lock_.
  mutable std::mutex lock_;
  /// All threads have ended. What is made ready now is not queued any more.
  bool ended_{false};
  std::vector<std::unique_ptr<worker>> workers_;
  /// The worker whose task has stopped the scheduler.
  std::unique_ptr<worker> ended_by_;

  // --- Written under lock_, read by any thread.
  std::atomic<bool> stopping_{false};

  /// The program ends: a worker that has waited does not go on, except the one that ends it.
  std::atomic<bool> halted_{false};
  std::atomic<const worker*> halted_by_{nullptr};

  processor_set all_;
  global_queue global_;
  idle_set idle_;
  poll_turn poll_;
  wake_up_lag lag_;                    ///< of the worker that has the turn to poll
  std::atomic<std::int64_t> lead_{0};  ///< what the engine knows of it; written by that worker
  realtime realtime_;
  spare_processors spares_;
  job_lists jobs_;
  monitor monitor_;
  progress_watch progress_;
  stall_watch stalls_;
  // The monitor's own: since when no worker has stopped spinning though one should have found
  // something, by their count; and when it has to look next.
  std::int64_t spinning_since_{0};
  std::uint32_t stops_seen_{0};
  std::int64_t look_by_{0};

  /// Whether a trace is under way: by the thread that begins it. The ring of operations on timers
  /// is kept when it has ended.
  std::atomic<bool> traced_{false};
  std::unique_ptr<trace_ring> operations_;

  std::string name_{"verge"};  ///< written before start()
  counter poll_rescues_;
  std::atomic<std::uint64_t> workers_started_{0};
  foreign_figures foreign_;
};

}  // namespace verge::detail
