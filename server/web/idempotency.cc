// SPDX-License-Identifier: Apache-2.0

#include "idempotency.h"

#include <utility>

namespace verge::server::web {

idempotency::found idempotency::begin(const std::string& key, const std::string& print,
                                      http::response& stored) {
  std::lock_guard held(lock_);
  forget_old(clock::now());
  const auto [at, is_new] = entries_.try_emplace(key);
  entry& e = at->second;
  if (is_new) {
    e.print = print;
    return found::nothing;
  }
  if (e.print != print) return found::other;
  if (!e.answered) return found::busy;
  stored = e.answer;
  return found::answer;
}

void idempotency::end(const std::string& key, const http::response& r, bool success) {
  std::lock_guard held(lock_);
  const auto at = entries_.find(key);
  if (at == entries_.end()) return;
  if (!success) {
    entries_.erase(at);
    return;
  }
  entry& e = at->second;
  e.answered = true;
  e.answer = r;
  e.at = clock::now();
  constexpr std::size_t overhead = 256;
  e.bytes = overhead + 2 * key.size() + e.print.size() + r.body.size() + r.headers.size();
  bytes_ += e.bytes;
  order_.emplace_back(key, e.at);
}

void idempotency::forget_old(clock::time_point now) {
  while (!order_.empty() && (bytes_ > limits_.bytes || now - order_.front().second > limits_.age)) {
    const auto at = entries_.find(order_.front().first);
    bytes_ -= at->second.bytes;
    entries_.erase(at);
    order_.pop_front();
  }
}

}  // namespace verge::server::web
