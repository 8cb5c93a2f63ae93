#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include <base/futex.h>
#include <sched/processor.h>

/// The monitor's thread, and when it looks: every 20 us while there is something to mend, less and
/// less often down to every 10 ms while there is not, and not at all once everything has been idle
/// for a while. Then it costs nothing, and the first processor that is taken wakes it. Before, it
/// gives back the memory that is not needed any more.
///
/// What it looks at and mends is the scheduler's matter: sysmon.cc.
///
/// Ground rules
///  - `asleep_` is written under the scheduler's lock: set by the monitor, once it has seen there
///    that every processor is idle, and cleared by the thread that takes one. A processor is taken
///    under the same lock, so either the monitor sees it, or that thread sees that the monitor
///    sleeps.
///  - `note_` is left by any thread. One that is left too often is a look too many.
///  - `thread_` belongs to the thread that starts and ends the scheduler.
namespace verge::detail {

class monitor {
 public:
  /// What the monitor watches. Its functions are called on the monitor's thread.
  class watched {
   public:
    /// The thread has begun.
    virtual void monitor_begins() noexcept {}
    virtual bool stopping() const noexcept = 0;
    /// Looks once. True if there was something to mend.
    virtual bool sysmon_look(std::int64_t now) noexcept = 0;
    virtual bool all_idle() const noexcept = 0;
    /// All have been idle for long: calls fall_asleep_locked(), under the lock, if they still are
    /// and no timer needs the monitor. False if not.
    virtual bool allows_deep_sleep() noexcept = 0;
    /// Gives memory back that has not been in use since the last call; whether there may be any.
    virtual void trim_memory() noexcept {}
    virtual bool can_trim_memory() const noexcept { return false; }
    /// After a deep sleep, or in place of one.
    virtual void sysmon_woke(std::int64_t now) noexcept = 0;

   protected:
    ~watched() = default;
  };

  /// How often it gives memory back, in a deep sleep as well.
  static constexpr std::int64_t trim_interval = 3'000'000'000;
  /// The longest pause between two looks.
  static constexpr std::int64_t longest_sleep = 10'000'000;

  /// Throws std::system_error if there is no thread.
  void start(watched& what);
  /// Ends the current sleep, or the next one.
  void wake() noexcept { note_.leave(); }
  void join() noexcept {
    if (thread_.joinable()) thread_.join();
  }

  void fall_asleep_locked() noexcept { asleep_.store(true, std::memory_order_relaxed); }
  void processor_taken_locked() noexcept {
    if (!asleep_.load(std::memory_order_relaxed)) return;
    asleep_.store(false, std::memory_order_relaxed);
    wake();
  }

  /// How often it has looked.
  std::uint64_t wakeups() const noexcept { return wakeups_.read(); }

 private:
  void run(watched& what) noexcept;
  void deep_sleep(watched& what) noexcept;

  std::thread thread_;
  note note_;
  std::atomic<bool> asleep_{false};
  counter wakeups_;
};

}  // namespace verge::detail
