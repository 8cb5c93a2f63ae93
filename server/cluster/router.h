// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include <verge/runtime.h>

#include "../broker/committer.h"
#include "membership.h"
#include "peers.h"
#include "session.h"

namespace verge::server::cluster {

/// Takes the commands of all clients of this server, and has a session for each.
class router final : public command_sink {
 public:
  router(runtime& rt, membership& of, peers& others)
      : runtime_(rt), membership_(of), peers_(others) {}

  using command_sink::submit;
  void submit(std::span<request> requests) override;

  membership& members() noexcept { return membership_; }
  /// A lane to the shard at the server that has it, or nothing if none is known to.
  std::unique_ptr<lane> open_lane(std::uint32_t shard, std::uint64_t number,
                                  std::weak_ptr<lane_listener> to);
  std::uint64_t next_number() noexcept { return next_.fetch_add(1) + 1; }
  bool is_draining() const noexcept { return draining_.load(); }
  void drain(bool on) noexcept { draining_.store(on); }
  void forget(client* c);
  std::size_t sessions();
  /// All clients leave. Returns when they have.
  void stop();

 private:
  runtime& runtime_;
  membership& membership_;
  peers& peers_;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<bool> draining_{false};
  std::mutex lock_;
  std::unordered_map<client*, std::shared_ptr<session>> sessions_;
};

}  // namespace verge::server::cluster
