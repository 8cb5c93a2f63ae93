// SPDX-License-Identifier: Apache-2.0

#include "places.h"

#include <algorithm>

namespace verge::server::push {

namespace {

using namespace std::chrono_literals;

/// As long as nothing is known; and a delivery keeps its place for four times what is usual.
constexpr std::chrono::nanoseconds usual_at_first = 50ms;
constexpr double patience_in_usual = 4;
constexpr std::chrono::nanoseconds least_patience = 100ms;
/// More is not usual, however long a receiver takes.
constexpr std::chrono::nanoseconds longest_usual = 1s;

}  // namespace

places::places(std::size_t beside)
    : beside_(beside), usual_(static_cast<double>(usual_at_first.count())) {}

std::size_t places::taken() const {
  std::lock_guard held(lock_);
  return taken_;
}

std::size_t places::all() const {
  std::lock_guard held(lock_);
  return taken_ + waiting_;
}

void places::take() {
  std::lock_guard held(lock_);
  ++taken_;
}

bool places::enter(ticket& t, const std::string& host, std::size_t most, standing as, bool own) {
  std::lock_guard held(lock_);
  several_ |= !own;
  const auto there = by_host_.find(host);
  if (there != by_host_.end() && there->second >= most) return false;
  if (as == standing::hangs && several_ && t.has_place) {
    if (hanging_ >= beside_ / 2 || waiting_ >= beside_) return false;
    t.has_place = false;
    t.hangs = true;
    --taken_;
    ++waiting_;
    ++hanging_;
  }
  ++by_host_[host];
  t.host = host;
  return true;
}

void places::exit(ticket& t) {
  std::lock_guard held(lock_);
  const auto there = by_host_.find(t.host);
  if (there == by_host_.end()) return;
  if (--there->second == 0) by_host_.erase(there);
  t.host.clear();
}

bool places::give_up(ticket& t) {
  std::lock_guard held(lock_);
  if (!t.has_place || !several_ || waiting_ >= beside_) return false;
  t.has_place = false;
  --taken_;
  ++waiting_;
  return true;
}

void places::leave(ticket& t) {
  std::lock_guard held(lock_);
  if (t.has_place) {
    --taken_;
    return;
  }
  --waiting_;
  if (t.hangs) --hanging_;
}

std::chrono::nanoseconds places::patience() const {
  std::lock_guard held(lock_);
  const std::chrono::nanoseconds some(static_cast<std::int64_t>(patience_in_usual * usual_));
  return std::max(least_patience, some);
}

void places::answered(std::chrono::nanoseconds took) {
  constexpr double weight = 0.05;
  std::lock_guard held(lock_);
  usual_ += weight * (static_cast<double>(std::min(took, longest_usual).count()) - usual_);
}

}  // namespace verge::server::push
