// SPDX-License-Identifier: Apache-2.0

// timer_queue against a multimap: a string of operations, and after each the two agree.

#include <verge/queue.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "input.h"

using verge::fuzz::expect;

namespace {

using queue = verge::basic_timer_queue<std::uint32_t>;
using time_point = queue::time_point;

class both {
 public:
  void start(time_point when) {
    const std::uint32_t number = next_++;
    const auto id = queue_.start(when, number);
    ids_.push_back(id);
    times_.emplace(number, when);
    order_.emplace(when, number);
    expect(!id.first || queue_.next(), "a first timer has a time");
  }
  void stop(std::size_t i) {
    if (ids_.empty()) return;
    const std::size_t n = i % ids_.size();
    const auto f = queue_.take(ids_[n]);
    const bool pending = forget(static_cast<std::uint32_t>(n));
    expect(f.has_value() == pending, "a timer is taken if it was pending");
    expect(!f || *f == n, "its own callback is returned");
  }
  void reset(std::size_t i, time_point when) {
    if (ids_.empty()) return;
    const auto n = static_cast<std::uint32_t>(i % ids_.size());
    const bool pending = times_.contains(n);
    expect(queue_.reset(ids_[n], when) == pending, "a pending timer is reset");
    if (!pending) return;
    forget(n);
    times_.emplace(n, when);
    order_.emplace(when, n);
  }
  void run(time_point now, std::size_t most) {
    for (; most != 0; --most) {
      const auto f = queue_.pop(now);
      if (!f) {
        expect(order_.empty() || order_.begin()->first > now, "what is due is returned");
        break;
      }
      expect(times_.contains(*f), "what is returned is pending");
      const time_point when = times_.at(*f);
      expect(when <= now, "nothing is early");
      expect(when == order_.begin()->first, "in order");
      forget(*f);
    }
  }
  void check() const {
    expect(queue_.size() == times_.size(), "as many as there are");
    expect(queue_.empty() == times_.empty(), "empty if there are none");
    const auto next = queue_.next();
    // The last time of the clock, and what is close to it, is never.
    if (!next) {
      expect(times_.empty() || order_.begin()->first.time_since_epoch().count() > latest,
             "there is a next");
    } else {
      expect(!times_.empty() && *next <= order_.begin()->first, "no later than the first");
    }
    expect(queue_.describe_violation().empty(), "the wheel is in order");
    expect(queue_.stale() <= times_.size() + 1100, "memory in proportion");
  }

 private:
  static constexpr std::int64_t latest = std::int64_t{1} << 60;

  bool forget(std::uint32_t n) {
    const auto found = times_.find(n);
    if (found == times_.end()) return false;
    for (auto [at, end] = order_.equal_range(found->second); at != end; ++at) {
      if (at->second != n) continue;
      order_.erase(at);
      break;
    }
    times_.erase(found);
    return true;
  }

  queue queue_;
  std::vector<queue::id> ids_;
  std::map<std::uint32_t, time_point> times_;
  std::multimap<time_point, std::uint32_t> order_;
  std::uint32_t next_ = 0;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  verge::fuzz::input in(data, size);
  both q;
  std::int64_t now = static_cast<std::int64_t>(in.below(3)) - 1;
  // Times from before 36 years ahead of the clock's beginning all count as that.
  const auto at = [&](std::int64_t ns) {
    constexpr std::int64_t earliest = 1 - (std::int64_t{1} << 60);
    return time_point(std::chrono::nanoseconds(std::max(ns, earliest)));
  };
  const auto later = [&](unsigned bits) {
    const std::int64_t d = in.magnitude(bits);
    return now > INT64_MAX - d ? INT64_MAX : now + d;
  };
  while (!in.empty()) {
    switch (in.below(7)) {
      case 0:
        q.start(at(later(50)));
        break;
      case 1:
        q.start(at(in.below(2) != 0 ? static_cast<std::int64_t>(in.number()) : later(34)));
        break;
      case 2:
        q.stop(in.byte());
        break;
      case 3:
        q.reset(in.byte(), at(later(40)));
        break;
      case 4:
        q.run(at(now), in.below(5));
        break;
      case 5:
        now = later(36);
        q.run(at(now), SIZE_MAX);
        break;
      default:
        for (std::size_t n = in.byte(), step = in.byte() + 1U; n != 0; --n) {
          q.start(at(later(20) + static_cast<std::int64_t>(n * step)));
        }
    }
    q.check();
  }
  return 0;
}
