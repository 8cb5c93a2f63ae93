// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include <inspect/history.h>
#include <sched/live_scheduler.h>
#include <verge/runtime.h>

/// What the page shows, as JSON: /stats.json.
///
/// Ground rules
///  - Nothing here takes longer if the runtime has more timers or tasks: of the timers it looks at
///    a sample, without a lock; of the tasks at those that began first, a few hundred under each of
///    the locks of their lists.
///  - It may be called while every processor is stuck: it waits for locks that are held for some
///    microseconds, and for nothing else.
namespace verge::detail {

class inspect_report {
 public:
  explicit inspect_report(runtime& rt);

  /// `since` is the last second that the page has.
  std::string write(const history& past, std::uint64_t since);

 private:
  static constexpr std::size_t sampled_timers = 16384;
  static constexpr std::size_t sampled_tasks = 4096;
  static constexpr std::size_t most_names = 24;

  runtime& runtime_;
  live_scheduler& scheduler_;
  std::int64_t begun_;
  std::atomic<std::uint32_t> seed_{0};
};

}  // namespace verge::detail
