// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>

#include <base/futex.h>
#include <sched/processor.h>

/// The monitor's thread, and when it looks: every 20 us while there is something to mend, less and
/// less often down to every 10 ms while there is not, and not at all once everything has been idle
/// for a while. Then it costs nothing, and the first processor that is taken wakes it. Before, it
/// gives back the memory that is not needed any more; and when much is being taken it is woken to
/// have the next piece ready.
///
/// What it looks at and mends is the scheduler's matter: sysmon.cc.
///
/// Ground rules
///  - `asleep_` is set under the scheduler's lock by the monitor, once it has seen there that every
///    processor is idle. The thread that clears it wakes the monitor. A processor is taken under
///    the same lock, so either the monitor sees it, or that thread sees that the monitor sleeps; it
///    wakes the monitor once it has released the lock (`call_`, guarded by the lock).
///  - `naps_` is written by the monitor: whether it sleeps for longer than short_nap. A thread that
///    has found something only the monitor can bring to its end reads it, after a full fence.
///  - `note_` is left by any thread. One that is not needed costs the monitor one look.
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
    /// After a look: when something may have to be mended next; 0 if nothing is known.
    virtual std::int64_t look_by() const noexcept { return 0; }
    virtual bool all_idle() const noexcept = 0;
    /// All have been idle for long: calls fall_asleep_locked(), under the lock, if they still are
    /// and no timer needs the monitor. False if not.
    virtual bool allows_deep_sleep() noexcept = 0;
    /// Gives memory back that has not been in use since the last call; whether there may be any.
    virtual void trim_memory() noexcept {}
    virtual bool can_trim_memory() const noexcept { return false; }
    /// Has memory ready that will be needed soon, if there was a call for it.
    virtual void prepare_memory() noexcept {}
    /// After a deep sleep, or in place of one.
    virtual void sysmon_woke(std::int64_t now) noexcept = 0;

   protected:
    ~watched() = default;
  };

  /// How often it gives memory back, in a deep sleep as well.
  static constexpr std::int64_t trim_interval = 3'000'000'000;
  /// The longest pause between two looks.
  static constexpr std::int64_t longest_sleep = 10'000'000;
  /// The pause before a look at a timer that is due soon, and the next one after it was called.
  static constexpr std::int64_t watchful_sleep = 3'000'000;
  static constexpr std::int64_t called_sleep = 1'000'000;
  static constexpr std::int64_t short_nap = 2'000'000;

  /// Throws std::system_error if there is no thread.
  void start(watched& what, std::string name);
  /// Ends the current sleep, or the next one.
  void wake() noexcept { note_.leave_surely(); }
  /// Something may need it within a few milliseconds. A full fence must come before this.
  void call() noexcept {
    if (naps_.load(std::memory_order_relaxed)) wake();
  }
  /// The same if everything has been idle for long, and soon will not be.
  void call_if_asleep() noexcept {
    if (asleep_.load(std::memory_order_relaxed) &&
        asleep_.exchange(false, std::memory_order_relaxed)) {
      wake();
    }
  }
  void join() noexcept {
    if (thread_.joinable()) thread_.join();
  }

  void fall_asleep_locked() noexcept { asleep_.store(true, std::memory_order_relaxed); }
  void processor_taken_locked() noexcept {
    if (!asleep_.load(std::memory_order_relaxed)) return;
    if (asleep_.exchange(false, std::memory_order_relaxed)) call_ = true;
  }
  /// Whether the caller has to wake it, once the lock is released.
  [[nodiscard]] bool take_call_locked() noexcept { return std::exchange(call_, false); }
  /// Whether it sleeps until it is woken. For tests.
  bool asleep() const noexcept {
    return asleep_.load(std::memory_order_relaxed) && naps_.load(std::memory_order_relaxed);
  }

  /// No monitor starts from now on, to show what works without it. For tests.
  static void switch_off() noexcept { off_.store(true, std::memory_order_relaxed); }
  static void switch_on() noexcept { off_.store(false, std::memory_order_relaxed); }

  /// How often it has looked.
  std::uint64_t wakeups() const noexcept { return wakeups_.read(); }

 private:
  void run(watched& what) noexcept;
  bool nap(watched& what, std::int64_t length) noexcept;
  void deep_sleep(watched& what) noexcept;

  inline static constinit std::atomic<bool> off_{false};

  std::thread thread_;
  note note_;
  std::atomic<bool> asleep_{false};
  std::atomic<bool> naps_{false};
  bool call_{false};
  counter wakeups_;
};

}  // namespace verge::detail
