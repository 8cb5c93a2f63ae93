#include "hosts.h"

#include <algorithm>
#include <chrono>

namespace verge::server::push {

namespace {

using namespace std::chrono_literals;

/// A turn is at least this long, and no task has to come back later than that.
constexpr std::chrono::nanoseconds shortest_turn = 1ms;
constexpr std::chrono::nanoseconds latest_turn = 10min;
constexpr std::chrono::nanoseconds soonest_turn = 50ms;

}  // namespace

bool host_table::enter(const std::string& host, clock::time_point now, nanoseconds& come_back) {
  std::lock_guard held(lock_);
  forget_idle(now);
  state& s = hosts_[host];
  const std::size_t room = limits_.all - std::min(limits_.all, under_way_);
  const std::size_t most = room == 0 ? 0 : std::min(limits_.each, 1 + room / 8);
  const std::chrono::nanoseconds step(limits_.rate == 0 ? 0 : 1'000'000'000 / limits_.rate);
  if (s.under_way < most && s.next_start <= now) {
    s.next_start = std::max(s.next_start, now - 1s) + step;
    ++s.under_way;
    ++under_way_;
    return true;
  }
  const auto each = static_cast<std::int64_t>(s.usual / static_cast<double>(limits_.each));
  const auto turn = std::max({shortest_turn, step, std::chrono::nanoseconds(each)});
  s.last_turn = std::max(s.last_turn, now + soonest_turn) + turn;
  s.last_turn = std::min(s.last_turn, now + latest_turn);
  come_back = std::chrono::nanoseconds(s.last_turn - now).count();
  return false;
}

void host_table::leave(const std::string& host, clock::time_point, nanoseconds took) {
  std::lock_guard held(lock_);
  state& s = hosts_[host];
  --s.under_way;
  --under_way_;
  constexpr double weight = 0.2;
  const auto t = static_cast<double>(took);
  s.usual = s.usual == 0 ? t : s.usual + weight * (t - s.usual);
}

std::size_t host_table::under_way() const {
  std::lock_guard held(lock_);
  return under_way_;
}

/// A receiver that has nothing under way and no turns to come is not known any more.
void host_table::forget_idle(clock::time_point now) {
  if (hosts_.size() < sweep_at_) return;
  std::erase_if(hosts_, [&](const auto& h) {
    return h.second.under_way == 0 && h.second.last_turn <= now && h.second.next_start <= now;
  });
  sweep_at_ = std::max<std::size_t>(1'024, 2 * hosts_.size());
}

}  // namespace verge::server::push
