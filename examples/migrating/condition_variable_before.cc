// SPDX-License-Identifier: Apache-2.0

// Reminders with std::condition_variable: a thread, a queue, a lock.

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <mutex>
#include <thread>

using namespace std::chrono_literals;

namespace {

// [code]
class reminders {
  using clock = std::chrono::steady_clock;

 public:
  ~reminders() {
    {
      const std::lock_guard held(mutex_);
      end_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  void start(int order, clock::duration d) {
    const std::lock_guard held(mutex_);
    due_.emplace(clock::now() + d, order);
    changed_.notify_one();  // wakes the thread for every order
  }
  bool paid(int order) {  // looks at every order
    const std::lock_guard held(mutex_);
    for (auto it = due_.begin(); it != due_.end(); ++it)
      if (it->second == order) {
        due_.erase(it);
        return true;
      }
    return false;
  }

 private:
  void run() {
    std::unique_lock held(mutex_);
    while (!end_) {
      if (due_.empty()) {
        changed_.wait(held);
      } else if (const auto first = due_.begin(); first->first > clock::now()) {
        changed_.wait_until(held, first->first);
      } else {
        std::printf("order %d: do you still want it?\n", first->second);  // all others wait
        due_.erase(first);
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<clock::time_point, int> due_;
  bool end_ = false;
  std::thread thread_{[this] { run(); }};
};
// [/code]

}  // namespace

int main() {
  reminders r;
  r.start(1, 10ms);
  r.start(2, 3min);
  const bool stopped = r.paid(2);
  std::this_thread::sleep_for(50ms);
  return stopped ? 0 : 1;
}
