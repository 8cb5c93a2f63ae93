// SPDX-License-Identifier: Apache-2.0

// Every engine in simulated time, by a string of operations, against a list of times.
//
// The heaps and hybrid fire a timer exactly when it is due, and those of one moment in any order.
// The wheels fire at the first tick that is not before its time. Nothing fires that was stopped,
// and what stop and reset return is what the list says.

#include <verge/simulation.h>
#include <verge/time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "input.h"

using namespace std::chrono_literals;
using verge::clock;
using verge::fuzz::expect;

namespace {

constexpr std::array engines{verge::engine::global_heap,    verge::engine::sharded_heap,
                             verge::engine::processor_heap, verge::engine::simple_wheel,
                             verge::engine::timing_wheel,   verge::engine::hybrid};

class world {
 public:
  world(verge::engine which, std::uint64_t seed)
      : wheel_(which == verge::engine::simple_wheel || which == verge::engine::timing_wheel),
        sim_({.seed = seed, .engine = which, .wheel = {.tick = tick, .size = 1200}}) {}

  void start(std::chrono::nanoseconds delay) {
    if (timers_.size() >= most) return;
    const std::size_t n = timers_.size();
    timers_.emplace_back();
    one& t = timers_.back();
    t.due = due_in(delay);
    t.handle = verge::after_func(delay, [this, n] { fired(n); });
  }
  void start_ticker(std::chrono::nanoseconds period) {
    if (timers_.size() >= most) return;
    const std::size_t n = timers_.size();
    timers_.emplace_back();
    one& t = timers_.back();
    t.period = period;
    t.due = due_in(period);
    t.ticker = verge::every(period, [this, n] { fired(n); });
  }
  void stop(std::size_t i) {
    if (timers_.empty()) return;
    one& t = timers_[i % timers_.size()];
    if (is_ticking(t)) return;
    settle(t, t.handle ? t.handle->stop() : t.ticker ? t.ticker->stop() : false);
  }
  void reset(std::size_t i, std::chrono::nanoseconds to) {
    if (timers_.empty()) return;
    one& t = timers_[i % timers_.size()];
    if (is_ticking(t) || (!t.handle && !t.ticker)) return;
    settle(t, t.handle ? t.handle->reset(to) : t.ticker->reset(to));
    if (t.ticker) t.period = to;
    t.due = due_in(to);
  }
  void destroy(std::size_t i) {
    if (timers_.empty()) return;
    one& t = timers_[i % timers_.size()];
    t.handle.reset();
    t.ticker.reset();
    t.due.reset();
    t.owed = 0;
  }
  void pass(std::chrono::nanoseconds d) {
    sim_.run_for(d);
    const auto now = sim_.now();
    for (const one& t : timers_) {
      expect(!t.due || *t.due + late() >= now, "what was due has fired");
      expect(t.owed == 0, "what has fired is called");
    }
  }
  /// What happens in the next callback.
  void plan(std::function<void()> f) { planned_ = std::move(f); }

 private:
  static constexpr std::chrono::milliseconds tick{10};
  static constexpr std::size_t most = 60;

  struct one {
    std::optional<verge::timer> handle;
    std::optional<verge::ticker> ticker;
    std::optional<clock::time_point> due;  ///< nothing: not pending
    std::chrono::nanoseconds period{0};
    int owed{0};  ///< firings whose call is still to come
  };

  /// It has fired, perhaps, and its call is still to come: what stop says of a ticker then is not
  /// known here.
  bool is_ticking(const one& t) { return t.ticker && t.due && *t.due <= sim_.now(); }
  /// What stop or reset said: it was pending, or if it is due, it may have fired together with the
  /// timer whose callback this is.
  void settle(one& t, bool said) {
    const bool pending = t.due.has_value();
    if (pending && !said) {
      expect(*t.due <= sim_.now(), "a timer that is not due is pending");
      ++t.owed;
    }
    expect(pending || !said, "what is not pending is not said to be");
    t.due.reset();
  }

  std::chrono::nanoseconds late() const { return wheel_ ? std::chrono::nanoseconds(tick) : 0ns; }
  clock::time_point due_in(std::chrono::nanoseconds d) {
    return sim_.now() + std::max<std::chrono::nanoseconds>(d, 0ns);
  }
  void fired(std::size_t n) {
    one& t = timers_[n];
    const auto now = sim_.now();
    if (t.owed != 0) {
      --t.owed;
      return;
    }
    expect(t.due.has_value(), "what fires is pending");
    expect(*t.due <= now, "nothing is early");
    expect(now <= *t.due + late(), "nothing is late");
    if (t.period == 0ns) {
      t.due.reset();
    } else {
      while (*t.due <= now) *t.due += t.period;
    }
    if (planned_) std::exchange(planned_, nullptr)();
  }

  const bool wheel_;
  verge::simulation sim_;
  std::vector<one> timers_ = [] {
    std::vector<one> all;
    all.reserve(most);
    return all;
  }();
  std::function<void()> planned_;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  verge::fuzz::input in(data, size);
  const verge::engine which = engines[in.below(engines.size())];
  world w(which, in.byte());
  // No longer than the simple wheel's span.
  const auto some_time = [&] { return std::chrono::nanoseconds(in.magnitude(32)); };
  for (int steps = 0; !in.empty() && steps < 150; ++steps) {
    const auto operation = in.below(9);
    const std::size_t i = in.byte();
    switch (operation) {
      case 0:
        w.start(some_time());
        break;
      case 1:
        w.start(std::chrono::nanoseconds(static_cast<int>(in.below(3)) - 1));
        break;
      case 2:
        w.start_ticker(20ms + some_time());
        break;
      case 3:
        w.stop(i);
        break;
      case 4:
        w.reset(i, 5ms + some_time());
        break;
      case 5:
        w.destroy(i);
        break;
      case 6:
        w.plan([&w, i, d = 5ms + some_time()] { w.reset(i, d); });
        break;
      case 7:
        w.plan([&w, i] { w.stop(i); });
        break;
      default:
        w.pass(std::chrono::nanoseconds(in.magnitude(29)));
    }
  }
  w.pass(5s);
  return 0;
}
