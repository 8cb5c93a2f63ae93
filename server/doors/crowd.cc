// SPDX-License-Identifier: Apache-2.0

#include "crowd.h"

namespace verge::server {

crowd::place crowd::enter() {
  std::lock_guard held(lock_);
  if (count_ < most_) {
    ++count_;
    return place(this);
  }
  if (newcomers_.empty()) return {};
  newcomer oldest = std::move(newcomers_.begin()->second);
  newcomers_.erase(newcomers_.begin());
  static_cast<void>(oldest.conn->close());
  return std::move(oldest.held);
}

std::uint64_t crowd::wait(std::shared_ptr<tcp_conn> conn, place p) {
  std::lock_guard held(lock_);
  newcomers_.emplace(next_, newcomer{std::move(conn), std::move(p)});
  return next_++;
}

crowd::place crowd::admit(std::uint64_t which) {
  std::lock_guard held(lock_);
  const auto found = newcomers_.extract(which);
  return found.empty() ? place() : std::move(found.mapped().held);
}

void crowd::dismiss() {
  // Places are given back without the lock, which they take.
  std::map<std::uint64_t, newcomer> all;
  std::lock_guard held(lock_);
  all.swap(newcomers_);
  for (auto& [number, n] : all) static_cast<void>(n.conn->close());
}

std::size_t crowd::count() const {
  std::lock_guard held(lock_);
  return count_;
}

void crowd::leave() noexcept {
  std::lock_guard held(lock_);
  --count_;
}

}  // namespace verge::server
