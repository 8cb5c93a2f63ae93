// SPDX-License-Identifier: Apache-2.0
// Code that blocks outside verge::blocking until the test releases it.
//
//   verge::runtime rt;
//   verge::test::blockers stuck;      // after the runtime: they are released before it ends
//   rt.spawn(stuck.block());
//   ... eventually([&] { return stuck.count() == 1; })
//   stuck.release();                  // or at the end of the scope
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

namespace verge::test {

class blockers {
 public:
  blockers() = default;
  ~blockers() { release(); }
  blockers(const blockers&) = delete;
  blockers& operator=(const blockers&) = delete;

  /// A callable that blocks. It may outlive this.
  auto block() const {
    return [s = state_] {
      std::unique_lock held(s->lock);
      ++s->count;
      s->go_on.wait(held, [&] { return s->released; });
    };
  }
  /// The number of callables that have begun to block.
  int count() const {
    std::lock_guard held(state_->lock);
    return state_->count;
  }
  void release() {
    std::lock_guard held(state_->lock);
    state_->released = true;
    state_->go_on.notify_all();
  }

 private:
  struct state {
    std::mutex lock;
    std::condition_variable go_on;
    int count{0};
    bool released{false};
  };
  const std::shared_ptr<state> state_ = std::make_shared<state>();
};

}  // namespace verge::test
