// SPDX-License-Identifier: Apache-2.0

// Debounce: act when it has been quiet for a while. Throttle: act at once, then at most once in a
// while. Both from any thread.

#include <chrono>
#include <cstdio>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include <verge/simulation.h>
#include <verge/time.h>

using namespace std::chrono_literals;
using std::chrono::milliseconds;

namespace {

// [debounce]
class debounce {
 public:
  debounce(milliseconds quiet, std::function<void()> f)
      : quiet_(quiet),
        timer_(verge::after_func(verge::time_point::max(), std::move(f))) {}  // never due
  void operator()() { timer_.reset(quiet_); }  // one compare-and-swap, from any thread

 private:
  milliseconds quiet_;
  verge::timer timer_;
};
// [/debounce]

// [throttle]
class throttle {
 public:
  throttle(milliseconds pause, std::function<void()> f) : pause_(pause), f_(std::move(f)) {}

  void operator()() {
    const std::lock_guard held(mutex_);
    if (std::exchange(pending_, true)) return;
    timer_.reset_at(next_);  // at once if that has passed; the last event of a burst is not lost
  }

 private:
  void run() {
    {
      const std::lock_guard held(mutex_);
      pending_ = false;
      next_ = verge::clock::now() + pause_;
    }
    f_();  // without the mutex: it may take its own, or cause the next event
  }

  const milliseconds pause_;
  const std::function<void()> f_;
  std::mutex mutex_;
  bool pending_ = false;
  verge::time_point next_ = verge::clock::now();
  verge::timer timer_ = verge::after_func(verge::time_point::max(), [this] { run(); });
};
// [/throttle]

}  // namespace

int main() {
  verge::simulation sim;
  const auto start = sim.now();
  std::vector<int> saved;
  std::vector<int> drawn;
  const auto ms = [&] { return static_cast<int>((verge::clock::now() - start) / 1ms); };
  debounce save(100ms, [&] { saved.push_back(ms()); });
  throttle draw(100ms, [&] { drawn.push_back(ms()); });
  for (int i = 0; i < 25; ++i) {  // an event every 10 ms, until 240 ms
    save();
    draw();
    sim.run_for(10ms);
  }
  sim.run_for(1s);

  // The function of a throttle may use the throttle, and a mutex that its callers hold.
  std::mutex mutex;
  std::vector<int> again;
  throttle* self = nullptr;
  throttle recursive(50ms, [&] {
    const std::lock_guard held(mutex);
    again.push_back(ms());
    if (again.size() < 3) (*self)();
  });
  self = &recursive;
  {
    const std::lock_guard held(mutex);
    recursive();
  }
  sim.run_for(1s);
  const bool calls_itself =
      again.size() == 3 && again[1] - again[0] == 50 && again[2] - again[1] == 50;

  std::printf("saved at");
  for (const int at : saved) std::printf(" %d", at);
  std::printf(" ms; drawn at");
  for (const int at : drawn) std::printf(" %d", at);
  std::printf(" ms\n");
  return calls_itself && saved == std::vector{340} && drawn == std::vector{0, 100, 200, 300} ? 0
                                                                                             : 1;
}
