// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include <sched/bit_set.h>
#include <sched/processor_set.h>
#include <sched/progress_watch.h>

/// Which spare processors are at rest, whether they are needed, and how fast they may become more.
/// spares.cc says what they are for.
///
/// Ground rules
///  - Functions that end in `_locked` are called under the scheduler's lock, which guards the set
///    of those at rest, the limit, and the number of those that begin tasks.
///  - `stuck_` is raised by the monitor and cleared by the first processor that moves, `returns_`
///    is raised by that one. A spare processor compares `returns_` with what it was when it came
///    up. All relaxed: a spare processor that sees the change late runs one more task.
///  - `left_behind_` is set by the monitor and cleared by the processor that answers. Should two
///    answer, one finds nothing.
///  - The rest is the monitor's own.
namespace verge::detail {

/// What the monitor has found while no processor moved.
enum class stuckness : std::uint8_t {
  none,
  some,  ///< timers that are due, or tasks that were suspended, do not run
  all,   ///< new tasks do not begin, either
};

class spare_processors {
 public:
  // --- Those at rest.

  /// A spare processor that rests, or a new one; nullptr if all that there may be are in use.
  processor* take_locked(processor_set& all) noexcept;
  void put_locked(processor& p) noexcept;
  /// Lets p begin new tasks until it rests.
  void let_begin_tasks_locked(processor& p) noexcept {
    p.begins_tasks = true;
    ++for_tasks_;
  }
  /// How many are at work that may begin new tasks.
  unsigned for_tasks_locked() const noexcept { return for_tasks_; }
  unsigned limit_locked() const noexcept { return limit_; }
  void limit_to_locked(unsigned n) noexcept { limit_ = std::min(n, processor_set::max_spares); }
  using set = bit_set<processor_set::max_spares>;
  const set& at_rest_locked() const noexcept { return at_rest_; }
  bool any_at_work_locked(const processor_set& all) const noexcept;

  // --- Whether they are needed.

  stuckness stuck() const noexcept { return stuck_.load(std::memory_order_relaxed); }
  bool all_stuck() const noexcept { return stuck() != stuckness::none; }
  /// By the monitor.
  void found_stuck(stuckness how) noexcept {
    if (stuck() < how) stuck_.store(how, std::memory_order_relaxed);
  }
  /// By each processor that is not spare, whenever it looks for something to run.
  void came_back() noexcept {
    if (!all_stuck()) return;
    returns_.fetch_add(1, std::memory_order_relaxed);
    stuck_.store(stuckness::none, std::memory_order_relaxed);
  }
  /// Whether a processor that was stuck when this spare one came up has moved since.
  bool others_came_back(const processor& spare) const noexcept {
    return returns_.load(std::memory_order_relaxed) != spare.returns_seen;
  }

  /// By the monitor: a timer is overdue, or something ready waits, and its processor does not come
  /// round to it. The next processor that looks for something to run does it instead.
  void report_left_behind() noexcept { left_behind_.store(true, std::memory_order_relaxed); }
  bool answer_left_behind() noexcept {
    if (!left_behind_.load(std::memory_order_relaxed)) return false;
    left_behind_.store(false, std::memory_order_relaxed);
    return true;
  }

  // --- The monitor's: how fast they may become more.

  /// Whether the one brought up last has yet to look for something to run.
  bool one_is_coming_up() noexcept;
  void brought_up(const processor& p, std::uint32_t tick) noexcept {
    coming_up_ = &p;
    coming_up_tick_ = tick;
    used_.add();
  }
  /// Whether those that compute have become more so lately that it is too soon for another. One
  /// that moves does not count: it does not compute for long.
  bool processor_time_is_short(const processor_set& all, const set& at_rest,
                               const progress_watch& seen, std::int64_t now) noexcept;
  /// Logs the first of all texts, and no other. `number` is its argument.
  [[gnu::format(printf, 2, 0)]] void say_once(const char* text, unsigned number) noexcept;

  /// How often one was brought up.
  std::uint64_t used() const noexcept { return used_.read(); }

 private:
  set at_rest_;
  unsigned limit_{processor_set::max_spares};
  unsigned for_tasks_{0};

  std::atomic<stuckness> stuck_{stuckness::none};
  std::atomic<bool> left_behind_{false};
  std::atomic<std::uint32_t> returns_{0};

  const processor* coming_up_{nullptr};
  std::uint32_t coming_up_tick_{0};
  /// How many computed at the last look, and since when there are as many.
  unsigned computing_{0};
  std::int64_t computing_since_{0};
  bool said_{false};
  counter used_;
};

}  // namespace verge::detail
