// SPDX-License-Identifier: Apache-2.0

// A rate limiter: so many a second, with a burst. Callers wait in turn, and a deadline ends a wait.
// The bucket is not filled by a timer: what a caller has to wait is computed.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>

#include <verge/context.h>
#include <verge/simulation.h>
#include <verge/under.h>

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

namespace {

// [limiter]
class rate_limiter {
 public:
  rate_limiter(nanoseconds interval, int burst) : interval_(interval), ahead_(interval * burst) {}

  // Waits for its turn. If ctx is done first, the turn is lost: at most that much is wasted.
  verge::task<> wait(verge::context ctx) {
    const verge::time_point turn = take();
    co_await verge::under(ctx, verge::sleep_until(turn));
  }

 private:
  verge::time_point take() {
    const std::lock_guard held(mutex_);
    next_ = std::max(next_ + interval_, verge::clock::now() + interval_ - ahead_);
    return next_;
  }

  const nanoseconds interval_;
  const nanoseconds ahead_;  // how far the past may be caught up with: the burst
  std::mutex mutex_;
  verge::time_point next_{};
};
// [/limiter]

}  // namespace

int main() {
  verge::simulation sim;
  const auto start = sim.now();
  rate_limiter limit(100ms, 3);  // ten a second, three at once
  int last = 0;
  sim.run([&]() -> verge::task<> {
    for (int i = 1; i <= 8; ++i) {
      co_await limit.wait(verge::background());
      last = static_cast<int>((verge::clock::now() - start) / 1ms);
      std::printf("%d at %d ms\n", i, last);
    }
  });

  // Turns are 100 ms apart. A caller that waits 250 ms at most gets two of three, and learns at its
  // deadline that there is no third.
  int turns = 0;
  int gave_up_after = 0;
  sim.run([&]() -> verge::task<> {
    const auto began = verge::clock::now();
    auto [ctx, cancel] = verge::with_timeout(verge::background(), 250ms);
    try {
      for (;; ++turns) co_await limit.wait(ctx);
    } catch (const verge::context_error& e) {
      if (e.code() == verge::context_errc::deadline_exceeded)
        gave_up_after = static_cast<int>((verge::clock::now() - began) / 1ms);
    }
  });
  std::printf("%d more, and the deadline after %d ms\n", turns, gave_up_after);
  return last == 500 && turns == 2 && gave_up_after == 250 ? 0 : 1;
}
