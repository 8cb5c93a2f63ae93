// SPDX-License-Identifier: Apache-2.0
// Like sync.WaitGroup on Go's side: tasks arrive, one waits for the last of them.
#pragma once

#include <verge/chan.h>
#include <verge/task.h>

#include <atomic>

namespace verge::bench {

class countdown {
 public:
  explicit countdown(int count) : left_(count) {}

  /// The last to arrive sends through its own copy of the handle: the waiting task may have resumed
  /// and destroyed this object before the send returns.
  void arrive() {
    if (left_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    chan<bool> done = done_;
    done.send(true);
  }
  task<void> wait() { co_await recv(done_); }

 private:
  std::atomic<int> left_;
  chan<bool> done_{1};
};

}  // namespace verge::bench
