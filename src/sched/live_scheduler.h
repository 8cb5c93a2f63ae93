#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <engine/engine.h>
#include <net/poller.h>
#include <sched/bit_set.h>
#include <sched/processor.h>
#include <verge/detail/scheduling.h>

/// The scheduler in real time: processors, workers, the poller and the monitor.
///
/// A worker that holds a processor looks for something to run in this order: the processor's
/// timers, its run queue, the global queue, the poller without blocking, other processors' queues
/// and in the last round their timers. If there is nothing it gives the processor up, and either
/// blocks in the poller until the earliest timer of all, or parks if somebody polls already.
///
/// The parts: schedule.cc (what to run next), ready.cc (what has become ready, and whom to wake for
/// it), workers.cc (threads, and the processors they hold), sysmon.cc (the monitor), spares.cc
/// (what runs while all processors are stuck).
///
/// Ground rules
///  - `lock_` guards the global queue, the idle sets, the number of processors and the state of the
///    spare ones. It is never held while a timers' lock is taken (Go #35375), a task runs, or a
///    system call other than that of a contended mutex is made.
///  - A processor is held by one worker, or idle, or retired, or it is a spare one at rest. Only
///    its holder touches what processor.h calls the holder's.
///  - No wake-up is lost. Who makes something ready first puts it on a queue, then looks whether a
///    processor is idle and nobody spins. Who gives up looking first puts its processor among the
///    idle and leaves the spinning, then looks once more at every queue. A full fence stands
///    between the two steps on both sides, so at least one of them sees the other.
///  - No timer is slept past. Who starts a timer first publishes it in its queue, then reads
///    `poll_until_`. Who polls first publishes in `poll_until_` that it may sleep for ever, then
///    looks for the earliest timer of all, then lowers `poll_until_` to that. Again with a full
///    fence in between on both sides: either the poller sees the timer, or the starter the poller.
///  - While a processor is idle and timers exist, somebody polls or spins, or a worker that came
///    from the poller is running a short while; should that one stay away the monitor replaces it.
namespace verge::detail {

/// Where the exceptions go that nobody else takes.
using exception_handler = std::function<void(std::exception_ptr)>;

/// Hidden as the poller in it is.
class [[gnu::visibility("hidden")]] live_scheduler;

class live_scheduler final : public scheduler, public engine_host {
 public:
  static constexpr unsigned max_processors = 256;
  static constexpr unsigned max_spares = 1024;

  live_scheduler(unsigned processors, exception_handler handler, poller::wait_method method);
  ~live_scheduler();

  /// The timers must be there before anything is made ready. Starts the monitor.
  void start(clockwork& timers);
  /// Ends all threads, and waits for what they run. What is queued stays queued.
  void stop() noexcept;
  /// The program is about to end: nothing that has not begun begins any more. Waits for what runs,
  /// but no longer than a second, and not for what waits itself; and leaves all as it is.
  void halt() noexcept;
  /// Whether the calling thread is one of its workers.
  bool runs_here() const noexcept;
  /// Returns when no worker but the calling one is inside the code of j, which has ended.
  void wait_until_left(const job& j) const noexcept;
  /// Whether the worker that stopped it, from inside a task, has come back since and left.
  bool returned() const noexcept {
    return ended_by_ != nullptr && ended_by_->ended.load(std::memory_order_acquire);
  }
  /// Hands out what is still on a queue, after stop().
  runnable* take_leftover() noexcept;
  /// Destroys every task that has not ended, after stop().
  void abandon_jobs() noexcept;

  /// Throws std::logic_error in the child of a fork, where its threads do not exist.
  void refuse_if_lost() const { made_in_.refuse("runtime"); }
  bool lost() const noexcept { return made_in_.lost(); }

  void set_processors(unsigned n);
  /// Acquire: whoever knows the number may use what was made for them.
  unsigned processors() const noexcept { return processors_.load(std::memory_order_acquire); }
  /// Processors that were ever made, given-up ones with them; and spare ones, which come after
  /// them.
  unsigned processors_made() const noexcept { return slots(); }
  unsigned spares_made() const noexcept { return spares_made_.load(std::memory_order_acquire); }

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
  unsigned firing_room() noexcept override;
  void timer_fired(std::int64_t when, std::int64_t now) noexcept override;

  /// Figures.
  struct figures {
    std::uint64_t tasks_run, timers_fired, timers_stolen, wakeups, queued;
    lateness_histogram lateness;
  };
  figures read(unsigned p) const noexcept;
  figures read_foreign() const noexcept;
  std::uint64_t workers_started() const noexcept {
    return workers_started_.load(std::memory_order_relaxed);
  }
  std::uint64_t monitor_wakeups() const noexcept { return monitor_wakeups_.read(); }
  std::uint64_t spare_used() const noexcept { return spare_used_.read(); }
  std::uint64_t poll_rescues() const noexcept { return poll_rescues_.read(); }

  /// Until when the one that polls may sleep; 0 while nobody does. For tests.
  std::int64_t polls_until() const noexcept { return poll_until_.load(std::memory_order_relaxed); }
  /// Allows fewer spare processors; none, and that is not worth a word. For tests.
  void limit_spares(unsigned n) noexcept;

 private:
  /// Every so many looks the global queue and the poller come before the local queue. Prime, so as
  /// not to beat with patterns in what the tasks do.
  static constexpr std::uint32_t global_turn = 61;

  /// What the monitor has found while no processor moved.
  enum class stuckness : std::uint8_t {
    none,
    some,  ///< timers, or what waits to go on, are not come to
    all,   ///< new tasks are not, either
  };

  // schedule.cc
  void work(worker& w) noexcept;
  runnable* schedule(worker& w) noexcept;
  void run(worker& w, runnable& r) noexcept;
  runnable* find_runnable(worker& w) noexcept;
  runnable* look_everywhere(worker& w) noexcept;
  runnable* take_local(processor& p) noexcept;
  runnable* take_global(processor& p) noexcept;
  runnable* take_from_elsewhere(worker& w) noexcept;
  runnable* steal(worker& w) noexcept;
  bool steal_timers(processor& mine, unsigned victim) noexcept;
  void run_overdue(processor& mine) noexcept;
  runnable* poll_without_blocking(worker& w) noexcept;
  bool forget_stopped_timers() noexcept;
  runnable* block_in_poller(worker& w) noexcept;
  timer_check check_timers(processor& holder, unsigned p) noexcept;
  bool anything_queued() const noexcept;
  struct first_timer {
    std::int64_t when;  ///< 0 if there is none
    unsigned of;        ///< whose it is
  };
  first_timer time_sleep_until() const noexcept;

  // ready.cc
  worker* worker_with_processor() noexcept;
  void push_local(processor& p, runnable& r) noexcept;
  void push_global(ready_list&& list) noexcept;
  void push_fired(runnable& r) noexcept;
  runnable* pop_global_locked() noexcept;
  void inject(ready_list&& list) noexcept;
  void wake_processor() noexcept;

  // workers.cc
  bool start_worker(processor* p, bool spinning) noexcept;
  bool park(worker& w) noexcept;
  bool acquire_or_park(worker& w) noexcept;
  void stop_spinning(worker& w) noexcept;
  processor* take_idle_locked() noexcept;
  processor* take_idle_locked(processor& p) noexcept;
  processor* take_idle_or_spare(unsigned preferred) noexcept;
  void put_idle_locked(processor& p) noexcept;
  void give_up_locked(worker& w) noexcept;
  void retire(worker& w) noexcept;
  void hand_off(worker& w) noexcept;
  void regain(worker& w, processor* last) noexcept;
  void let_idle_workers_go_locked() noexcept;
  bool somebody_runs() const noexcept;
  unsigned slots() const noexcept { return slots_.load(std::memory_order_acquire); }

  // sysmon.cc
  void sysmon() noexcept;
  bool sysmon_look(std::int64_t now) noexcept;
  /// Whether somebody sleeps in the poller, and no longer than that.
  bool somebody_polls_until(std::int64_t when) const noexcept;
  void sysmon_deep_sleep() noexcept;
  struct processor_look {
    bool moved;        ///< one has looked for something to run since the monitor last asked
    bool came_round;   ///< one has that is no spare
    bool left_behind;  ///< one has not for long, though something waits in its queue
  };
  processor_look look_at_processors(std::int64_t now) noexcept;
  stuckness look_at_global_queue(std::int64_t now, bool came_round) noexcept;

  // spares.cc
  runnable* look_as_spare(processor& p) noexcept;
  runnable* take_as_spare(const processor& p) noexcept;
  runnable* rescue(processor& p) noexcept;
  bool only_new_tasks_locked() const noexcept;
  processor* take_spare_locked() noexcept;
  void put_spare_locked(processor& p) noexcept;
  bool bring_up_spare(stuckness how, std::int64_t now) noexcept;
  bool processor_time_is_short(std::int64_t now) noexcept;
  void say_once(const char* text, unsigned number) noexcept;
  static bool is_spare(const processor& p) noexcept { return p.id >= max_processors; }
  bool others_came_back(const processor& spare) noexcept;
  template <class F>
  void for_each_processor(F&& f) const;

  const process_mark made_in_;
  exception_handler handler_;
  clockwork* timers_{nullptr};
  engine* engine_{nullptr};
  /// Shared with descriptors, which may outlive the scheduler.
  const std::shared_ptr<poller> shared_poller_;
  poller& poller_;

  /// One change of the number of processors at a time. Taken before lock_.
  std::mutex resize_lock_;

  // --- Guarded by lock_.
  mutable std::mutex lock_;
  /// All threads have ended. What comes now is not queued any more.
  bool ended_{false};
  ready_list global_;
  /// How many were taken from global_ and fired_. The monitor sees by it whether they wait.
  std::uint32_t global_taken_{0};
  /// What threads that drive an engine have fired: taken before the rest, and by spare processors.
  ready_list fired_;
  bit_set<max_processors> idle_;
  worker* idle_workers_{nullptr};
  std::vector<std::unique_ptr<worker>> workers_;
  /// The worker whose task has stopped the scheduler.
  std::unique_ptr<worker> ended_by_;
  bit_set<max_spares> spares_at_rest_;
  unsigned spare_limit_{max_spares};
  /// How many are at work that may begin new tasks.
  unsigned spares_for_tasks_{0};

  // --- Written under lock_, read by anybody.
  std::atomic<unsigned> processors_;
  /// Processors that were ever made: [0, slots_). Their timers are looked at even when retired.
  std::atomic<unsigned> slots_{0};
  std::array<std::unique_ptr<processor>, max_processors> all_;
  std::atomic<std::size_t> global_size_{0};  ///< of global_ and fired_
  std::atomic<unsigned> idle_count_{0};
  std::atomic<bool> stopping_{false};
  /// The program ends: who has waited goes on no more, but for the worker that ends it.
  std::atomic<bool> halted_{false};
  std::atomic<const worker*> halted_by_{nullptr};
  std::atomic<bool> monitor_asleep_{false};

  /// Workers that look for work: counted up by who starts one, down by itself.
  alignas(64) std::atomic<unsigned> spinning_{0};
  /// Until when the one that polls may sleep; 0 while nobody does.
  alignas(64) std::atomic<std::int64_t> poll_until_{0};
  /// Held by the one that polls.
  std::atomic<bool> polling_{false};
  /// When somebody last looked at the poller.
  std::atomic<std::int64_t> last_poll_{0};

  /// Processors for when all others are stuck in user code: [0, spares_made_). One comes up when
  /// something is not done in time and nobody moves; another when what it runs is stuck as well.
  std::array<std::unique_ptr<processor>, max_spares> spares_;
  std::atomic<unsigned> spares_made_{0};
  /// All processors were stuck when the monitor last looked; cleared by the first that moves.
  std::atomic<stuckness> stuck_{stuckness::none};
  /// The monitor has seen a timer that is overdue, or something that waits to run, whose processor
  /// does not come round to it: whoever schedules next does.
  std::atomic<bool> left_behind_{false};
  /// Raised by every look of a processor that is no spare, while stuck_.
  std::atomic<std::uint32_t> returns_{0};
  /// The monitor's: how far the processors, then the spare ones, were when it last looked.
  std::array<std::uint32_t, max_processors + max_spares> monitor_ticks_{};
  /// The monitor's: when each of them was last seen to move, or to have nothing that waits.
  std::array<std::int64_t, max_processors + max_spares> well_at_{};
  /// The monitor's: since when nobody has come to what is in the global queue, and what
  /// global_taken_ was then.
  std::int64_t queue_still_since_{0};
  std::uint32_t global_taken_seen_{0};
  /// The monitor's: the spare processor that it brought up last, and how far that was then.
  processor* coming_up_{nullptr};
  std::uint32_t coming_up_tick_{0};
  /// The monitor's: which had not moved when it last looked; how many spare ones of these computed
  /// when it last asked, and when these last became more.
  bit_set<max_processors + max_spares> still_;
  unsigned computing_{0};
  std::int64_t computing_since_{0};
  /// The monitor's: it has said that there are no more.
  bool said_{false};

  std::thread monitor_;
  note monitor_note_;
  counter monitor_wakeups_;
  counter spare_used_;
  counter poll_rescues_;
  std::atomic<std::uint64_t> workers_started_{0};

  /// What threads that hold no processor fired: an engine's own timer threads.
  std::mutex foreign_lock_;
  counter foreign_fired_;
  lateness_histogram::recorder foreign_lateness_;

  /// Live jobs, in several lists so that spawning tasks do not meet at one lock.
  struct alignas(64) job_list {
    std::mutex lock;
    job* first{nullptr};
  };
  std::array<job_list, 16> jobs_;
  job_list& list_of(const job& j) noexcept {
    return jobs_[(reinterpret_cast<std::uintptr_t>(&j) >> 6) % jobs_.size()];
  }
};

template <class F>
void live_scheduler::for_each_processor(F&& f) const {
  const unsigned n = slots();
  for (unsigned i = 0; i < n; ++i) f(*all_[i]);
  const unsigned spares = spares_made_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < spares; ++i) f(*spares_[i]);
}

}  // namespace verge::detail
