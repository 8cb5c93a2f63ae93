// SPDX-License-Identifier: Apache-2.0

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
/// What is known of a receiver is kept so long, and of so many.
constexpr auto keep_for = 10min;
constexpr std::size_t most_kept = 65'536;

std::size_t index(standing s) noexcept { return static_cast<std::size_t>(s); }

}  // namespace

/// Under the lock, as all that are private.
host_table::state& host_table::find(const std::string& host, clock::time_point now) {
  forget_idle(now);
  state& s = hosts_.try_emplace(host, limits_.each).first->second;
  s.seen = now;
  return s;
}

bool host_table::has_room(const state& s) const {
  const std::size_t room = limits_.all - std::min(limits_.all, under_way_);
  if (room == 0 || s.under_way >= std::min(s.share, 1 + room / 8)) return false;
  const std::size_t hanging = by_standing_[index(standing::hangs)];
  const std::size_t strange = hanging + by_standing_[index(standing::unknown)];
  if (s.known == standing::hangs && hanging >= std::max<std::size_t>(1, limits_.all / 2)) {
    return false;
  }
  return s.known == standing::answers || strange < limits_.all - limits_.all / 8;
}

bool host_table::enter(const std::string& host, clock::time_point now, standing& as,
                       nanoseconds& come_back) {
  std::lock_guard held(lock_);
  state& s = find(host, now);
  if (has_room(s) && s.next_start <= now) {
    s.next_start = std::max(s.next_start, now - 1s) + step();
    as = s.known;
    ++s.under_way;
    ++under_way_;
    ++by_standing_[index(as)];
    return true;
  }
  come_back = next_turn(s, now);
  return false;
}

std::chrono::nanoseconds host_table::step() const {
  return std::chrono::nanoseconds(limits_.rate == 0 ? 0 : 1'000'000'000 / limits_.rate);
}

nanoseconds host_table::next_turn(state& s, clock::time_point now) const {
  const auto each = static_cast<std::int64_t>(s.usual / static_cast<double>(s.share));
  const auto turn = std::max({shortest_turn, step(), std::chrono::nanoseconds(each)});
  s.last_turn = std::max(s.last_turn, now + soonest_turn) + turn;
  s.last_turn = std::min(s.last_turn, now + latest_turn);
  return std::chrono::nanoseconds(s.last_turn - now).count();
}

nanoseconds host_table::turn(const std::string& host, clock::time_point now) {
  std::lock_guard held(lock_);
  return next_turn(find(host, now), now);
}

void host_table::leave(const std::string& host, standing as, ending how, nanoseconds took) {
  std::lock_guard held(lock_);
  --under_way_;
  --by_standing_[index(as)];
  const auto found = hosts_.find(host);
  if (found == hosts_.end()) return;
  state& s = found->second;
  --s.under_way;
  constexpr double weight = 0.2;
  const auto t = static_cast<double>(took);
  s.usual = s.usual == 0 ? t : s.usual + weight * (t - s.usual);
  if (how == ending::hung) s.share = std::max<std::size_t>(1, s.share / 2);
  if (how == ending::answered) s.share = std::min(limits_.each, 2 * s.share);
  if (how != ending::other) {
    s.known = how == ending::hung ? standing::hangs : standing::answers;
  }
}

standing host_table::of(const std::string& host) const {
  std::lock_guard held(lock_);
  const auto found = hosts_.find(host);
  return found == hosts_.end() ? standing::unknown : found->second.known;
}

std::size_t host_table::under_way() const {
  std::lock_guard held(lock_);
  return under_way_;
}

/// A receiver that has had nothing to do with us for a while is not known any more; if there are
/// very many, none that has nothing under way and no turns to come.
void host_table::forget_idle(clock::time_point now) {
  if (hosts_.size() < sweep_at_) return;
  const bool many = hosts_.size() >= most_kept;
  std::erase_if(hosts_, [&](const auto& h) {
    const state& s = h.second;
    return s.under_way == 0 && s.last_turn <= now && s.next_start <= now &&
           (many || now - s.seen > keep_for);
  });
  sweep_at_ = std::max<std::size_t>(1'024, 2 * hosts_.size());
}

}  // namespace verge::server::push
