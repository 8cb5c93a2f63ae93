// SPDX-License-Identifier: Apache-2.0

// An idle time-out with std::condition_variable: a thread for each connection.

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

using namespace std::chrono_literals;

namespace {

class connection {
  using clock = std::chrono::steady_clock;

 public:
  ~connection() {
    const std::lock_guard held(mutex_);
    closed_ = true;
    changed_.notify_one();  // and then the thread is joined, which may just write "idle"
  }
  void received() {
    const std::lock_guard held(mutex_);
    until_ = clock::now() + 30ms;  // the thread wakes at the old time, and waits again
  }

 private:
  void watch() {
    std::unique_lock held(mutex_);
    while (!closed_ && clock::now() < until_) changed_.wait_until(held, clock::time_point(until_));
    if (!closed_) std::puts("idle");
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  clock::time_point until_ = clock::now() + 30ms;
  std::jthread thread_{[this] { watch(); }};  // one for each connection
};

}  // namespace

int main() {
  connection c;
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(10ms);
    c.received();
  }
  std::this_thread::sleep_for(100ms);
}
