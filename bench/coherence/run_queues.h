// SPDX-License-Identifier: Apache-2.0
// The run queues of all processors, and what workers do to them. Compiled with the hooks.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <sched/run_queue.h>

namespace verge::coherence {

class run_queues {
 public:
  explicit run_queues(unsigned n);
  ~run_queues();
  run_queues(const run_queues&) = delete;
  run_queues& operator=(const run_queues&) = delete;

  /// The worker of processor i makes something ready and runs it.
  void run_a_task(unsigned i);
  /// It has nothing, and looks at all others once.
  void steal(unsigned i);

 private:
  struct alignas(128) one {
    detail::run_queue queue;
    detail::runnable task;
  };
  std::vector<std::unique_ptr<one>> all_;
};

}  // namespace verge::coherence
