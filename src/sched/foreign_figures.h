// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>

#include <sched/processor.h>
#include <verge/detail/lateness.h>

namespace verge::detail {

/// The timers that threads without a processor have fired: an engine's own timer threads. The lock
/// makes one writer of them; any thread may read.
class foreign_figures {
 public:
  void timer_fired(std::int64_t late) noexcept {
    std::lock_guard held(lock_);
    fired_.add();
    lateness_.record(late);
  }
  void name_fired(const timer_behaviour* does) noexcept { names_.add_shared(does, 1); }
  std::uint64_t timers_fired() const noexcept { return fired_.read(); }
  const name_counts& names() const noexcept { return names_; }
  lateness_histogram lateness() const noexcept { return lateness_.read(); }

 private:
  std::mutex lock_;
  counter fired_;
  lateness_histogram::recorder lateness_;
  name_counts names_;
};

}  // namespace verge::detail
