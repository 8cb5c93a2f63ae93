// SPDX-License-Identifier: Apache-2.0

// A timer whose function takes a mutex that its owner holds when it destroys the timer: the way to
// a deadlock, and the way around it.

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <map>
#include <mutex>
#include <utility>

#include <verge/time.h>

using namespace std::chrono_literals;

namespace {

// [sessions]
class sessions {
 public:
  ~sessions() {
    std::map<int, verge::timer> all;  // declared before the guard: destroyed after the unlock
    const std::lock_guard held(mutex_);
    all.swap(open_);
  }

  void open(int id) {
    const std::lock_guard held(mutex_);
    open_[id] = verge::after_func(1ms, [this, id] { expire(id); });
  }

  void close(int id) {
    verge::timer old;
    {
      const std::lock_guard held(mutex_);
      const auto it = open_.find(id);
      if (it == open_.end()) return;
      old = std::move(it->second);  // `old` was empty: nothing to wait for
      open_.erase(it);              // the timer in it is empty: nothing to wait for
    }
  }  // `old` is destroyed here: it may wait for expire(), which may wait for the mutex, now free

  std::size_t size() {
    const std::lock_guard held(mutex_);
    return open_.size();
  }

 private:
  void expire(int id) {
    verge::timer own;  // a callback may destroy its own timer: that does not wait for itself
    const std::lock_guard held(mutex_);
    const auto it = open_.find(id);
    if (it == open_.end()) return;  // closed while this call waited for the mutex
    own = std::move(it->second);
    open_.erase(it);
  }

  std::mutex mutex_;
  std::map<int, verge::timer> open_;
};
// [/sessions]

}  // namespace

int main() {
  sessions all;
  for (int id = 0; id < 2000; ++id) all.open(id);
  for (int id = 0; id < 2000; id += 2) all.close(id);  // while the others expire
  while (all.size() > 0) verge::sleep(1ms).wait();
  std::puts("every session is closed or has expired");
}
