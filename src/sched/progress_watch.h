// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include <sched/bit_set.h>
#include <sched/global_queue.h>
#include <sched/processor_set.h>

/// How the monitor tells a processor that works from one that is stuck: what it saw at its last
/// look, compared with what it sees now.
///
/// Ground rules
///  - All fields belong to the monitor's thread. What they are compared with - a processor's count
///    of looks, whether its queue is empty - is read without a lock; an old value delays a finding
///    by one look of the monitor.
namespace verge::detail {

class progress_watch {
 public:
  /// How late a timer must be, or how long something ready must have waited, before its processor
  /// counts as stuck.
  static constexpr std::int64_t stuck_after = 10'000'000;
  /// For how long a processor that was seen to move counts as one that comes round.
  static constexpr std::int64_t lately = 1'000'000;

  struct finding {
    bool moved;        ///< a processor has looked for something to run since the last look
    bool came_round;   ///< one that is not spare has
    bool left_behind;  ///< one has not for long, though something waits in its queue
  };
  finding look(const processor_set& processors, std::int64_t now) noexcept {
    finding found{.moved = false, .came_round = false, .left_behind = false};
    processors.for_each([&](const processor& p) {
      const std::uint32_t tick = p.tick.load(std::memory_order_relaxed);
      const bool moved = tick != ticks_[p.id];
      ticks_[p.id] = tick;
      still_.set(p.id, !moved);
      if (moved) moved_at_[p.id] = now;
      if (moved || p.queue.empty()) well_at_[p.id] = now;
      found.moved = found.moved || moved;
      found.came_round = found.came_round || (moved && !processor_set::is_spare(p));
      found.left_behind = found.left_behind || well_at_[p.id] + stuck_after < now;
    });
    return found;
  }
  /// Whether p had not moved at the last look.
  bool is_still(const processor& p) const noexcept { return still_.test(p.id); }
  /// Whether p was seen to move lately: its holder looks at its timers and its queue.
  bool moved_lately(const processor& p, std::int64_t now) const noexcept {
    return now - moved_at_[p.id] < lately;
  }

  /// The global queue is empty, or a processor has come round that takes from it.
  void queue_is_well(std::int64_t now) noexcept { queue_still_since_ = now; }
  /// For how long it has not been well, and nothing was taken from it.
  std::int64_t queue_still_for(std::int64_t now) const noexcept { return now - queue_still_since_; }
  /// Whether something was taken from it since this was last true.
  bool queue_moved_locked(const global_queue& q) noexcept {
    if (q.taken_locked() == taken_seen_) return false;
    taken_seen_ = q.taken_locked();
    return true;
  }

 private:
  /// By processor::id: its count of looks, when it was last seen to move, and when it was last seen
  /// to move or to have an empty queue.
  std::array<std::uint32_t, processor_set::max_ids> ticks_{};
  std::array<std::int64_t, processor_set::max_ids> moved_at_{};
  std::array<std::int64_t, processor_set::max_ids> well_at_{};
  bit_set<processor_set::max_ids> still_;
  std::int64_t queue_still_since_{0};
  std::uint32_t taken_seen_{0};
};

}  // namespace verge::detail
