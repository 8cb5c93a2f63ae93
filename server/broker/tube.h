// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "window.h"

namespace verge::server {

/// A named queue.
struct tube {
  tube_number number{0};
  std::string name;
  window<delayed_window_order> delayed;
  window<ready_window_order> ready;
  window<buried_window_order> buried;
  std::uint64_t counts[4]{};  ///< by state; what is only in the store is counted by its place
  std::uint64_t urgent{0};
  tube_record on_disk;   ///< by place, with what the next batch changes
  bool in_store{false};  ///< the store has a record of it
  bool changed{false};   ///< the next batch writes the record

  /// Waiting clients, the first to come first.
  std::set<std::pair<std::uint64_t, client*>> waiting;
  std::uint64_t users{0};
  std::uint64_t watchers{0};

  clock::time_point paused_until{};
  alarm_queue::id pause_end;
  nanoseconds pause{0};

  due_order due_mark{no_due_mark};  ///< tube_record::due_mark, as the next batch may have it
  bool mark_is_raised{false};       ///< and none has it yet
  /// When the first delayed task is due, as the broker has noted it.
  wall_time noted_due{0};
  bool is_noted{false};
  bool is_falling{false};  ///< in the queue of those whose time has come

  std::uint64_t total{0};
  std::uint64_t reserves{0};
  std::uint64_t deletes{0};
  std::uint64_t pauses{0};

  std::uint64_t& count(task_state s) noexcept { return counts[static_cast<std::size_t>(s)]; }
  std::uint64_t tasks() const noexcept { return counts[0] + counts[1] + counts[2] + counts[3]; }
};

}  // namespace verge::server
