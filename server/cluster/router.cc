// SPDX-License-Identifier: Apache-2.0

#include "router.h"

#include <chrono>
#include <thread>
#include <utility>

namespace verge::server::cluster {

void router::submit(std::span<request> requests) {
  std::shared_ptr<session> last;
  client* last_client = nullptr;
  for (request& r : requests) {
    if (r.from.get() != last_client) {
      std::lock_guard held(lock_);
      auto found = sessions_.find(r.from.get());
      if (found == sessions_.end()) {
        // One that leaves twice, or has never come, has no session.
        if (r.what.what == verb::leave) r.from->left();
        if (is_silent(r.what.what) && r.what.what != verb::arrive) continue;
        found = sessions_.emplace(r.from.get(), std::make_shared<session>(*this, r.from)).first;
        go(runtime_, &session::run, found->second).detach();
      }
      last = found->second;
      last_client = r.from.get();
    }
    last->submit(std::move(r.what));
  }
}

void router::forget(client* c) {
  std::lock_guard held(lock_);
  sessions_.erase(c);
}

void router::stop() {
  using namespace std::chrono_literals;
  {
    std::lock_guard held(lock_);
    for (auto& [c, s] : sessions_) s->submit(command(verb::leave));
  }
  while (sessions() != 0) std::this_thread::sleep_for(1ms);
}

std::size_t router::sessions() {
  std::lock_guard held(lock_);
  return sessions_.size();
}

std::unique_ptr<lane> router::open_lane(std::uint32_t shard, std::uint64_t number,
                                        std::weak_ptr<lane_listener> to) {
  if (const auto service = membership_.local(shard)) {
    return service->open_lane(number, std::move(to));
  }
  const std::string at = membership_.peer_of(shard);
  if (at.empty()) return nullptr;
  return peers_.open_lane(at, shard, number, std::move(to));
}

}  // namespace verge::server::cluster
