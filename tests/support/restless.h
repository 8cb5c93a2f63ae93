// SPDX-License-Identifier: Apache-2.0
// A task that always has something to do: it yields to itself until the end of the scope.
//
//   verge::runtime rt;
//   verge::test::restless busy(rt);   // after the runtime
//   ... eventually([&] { return busy.turns() > 0; })
#pragma once

#include <verge/runtime.h>
#include <verge/task.h>

#include <atomic>

namespace verge::test {

class restless {
 public:
  explicit restless(runtime& rt) : task_(rt.spawn([this] { return run(); })) {}
  ~restless() {
    over_ = true;
    task_.join();
  }
  restless(const restless&) = delete;
  restless& operator=(const restless&) = delete;

  int turns() const { return turns_; }

 private:
  task<> run() {
    while (!over_) {
      ++turns_;
      co_await verge::yield();
    }
  }

  std::atomic<bool> over_{false};
  std::atomic<int> turns_{0};
  join_handle<> task_;
};

}  // namespace verge::test
