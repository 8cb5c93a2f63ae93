// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include <sched/processor.h>
#include <sched/thread_probe.h>
#include <verge/stall.h>

/// Finds turns that hold a processor for long, and reports them (verge/stall.h).
///
/// Ground rules
///  - A worker counts its turns (worker::turn): odd while it runs something and has a processor for
///    it. That is all that a turn pays. The monitor compares the count with what it saw before.
///  - What is not said to be something else is the monitor's own. `report_` is set before the
///    monitor starts, and called on its thread with no lock held.
///  - `recent_` has a lock of its own; `captures_` is set by any thread.
namespace verge::detail {

class stall_watch {
 public:
  using handler = std::function<void(const stall&)>;

  /// Before the monitor starts. No turn is a stall if `after` is 0.
  void set(std::int64_t after, handler report);
  /// From now on backtraces are taken and stalls are kept, for an inspector.
  void capture() noexcept;
  bool captures() const noexcept { return captures_.load(std::memory_order_relaxed); }

  // --- By the monitor.

  bool due(std::int64_t now) const noexcept { return looks() && now >= next_look_; }
  void begin_look(std::int64_t now) noexcept { next_look_ = now + between_looks; }
  /// Compares the worker's turn with what it was. Under the scheduler's lock.
  void look_locked(worker& w, std::int64_t now) noexcept;
  /// Asks and reports, after all workers were looked at, with no lock.
  void finish_look(std::int64_t now) noexcept;
  bool looks() const noexcept { return after_ != 0; }
  /// Whether a stall was found that has yet to be reported.
  bool owes_report() const noexcept { return current_.thread != 0; }
  /// The monitor has ended: takes back a question that it has asked, so that others may ask.
  void end() noexcept;

  // --- From any thread.

  std::uint64_t count() const noexcept { return count_.read(); }
  std::int64_t longest() const noexcept { return longest_.load(std::memory_order_relaxed); }
  std::vector<stall> recent() const;

 private:
  static constexpr std::int64_t between_looks = 10'000'000;
  static constexpr std::int64_t patience = 100'000'000;
  static constexpr std::int64_t between_reports = 1'000'000'000;
  static constexpr std::size_t most_recent = 32;

  struct found {
    pid_t thread{0};  ///< 0: none
    std::uint32_t turn{0};
    std::int64_t since{0};
    std::int64_t asked{0};  ///< 0: not yet
  };

  void report(const found& f, const thread_probe::answer* answer, std::int64_t now) noexcept;

  std::int64_t after_{0};
  handler report_;
  std::atomic<bool> captures_{false};

  std::int64_t next_look_{0};
  found current_;
  std::int64_t last_report_{0};
  std::uint64_t unreported_{0};

  counter count_;
  std::atomic<std::int64_t> longest_{0};
  mutable std::mutex lock_;
  std::deque<stall> recent_;
};

}  // namespace verge::detail
