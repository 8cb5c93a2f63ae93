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
      : quiet_(quiet), timer_(verge::after_func(quiet, std::move(f))) {
    timer_.stop();
  }
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
    const auto now = verge::clock::now();
    if (now >= next_) {
      next_ = now + pause_;
      f_();
    } else if (!pending_) {  // the last event of a burst is not lost
      pending_ = true;
      later_ = verge::after_func(next_, [this] { run_pending(); });
    }
  }

 private:
  void run_pending() {
    const std::lock_guard held(mutex_);
    pending_ = false;
    next_ = verge::clock::now() + pause_;
    f_();
  }

  milliseconds pause_;
  std::function<void()> f_;
  std::mutex mutex_;
  verge::time_point next_{};
  bool pending_ = false;
  verge::timer later_;  // assigned only while no call of it is pending or holds the mutex
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
  std::printf("saved at");
  for (const int at : saved) std::printf(" %d", at);
  std::printf(" ms; drawn at");
  for (const int at : drawn) std::printf(" %d", at);
  std::printf(" ms\n");
  return saved == std::vector{340} && drawn == std::vector{0, 100, 200, 300} ? 0 : 1;
}
