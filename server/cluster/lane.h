// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "../broker/command.h"

/// A lane: one client's way to one shard, as one server has it from one epoch on. Commands go in,
/// and replies come out in their order, until the server loses the shard or is lost: from then on
/// all is answered `moved`, or, if a command may have been executed, `internal_error`. A lane that
/// has said so never executes a later command, so that the order of commands is kept: what follows
/// needs another lane.
namespace verge::server::cluster {

/// Takes the replies of lanes. From any thread; neither may block.
class lane_listener {
 public:
  lane_listener() = default;
  lane_listener(const lane_listener&) = delete;
  lane_listener& operator=(const lane_listener&) = delete;
  virtual ~lane_listener() = default;

  virtual void heard(std::uint64_t lane, reply r) = 0;
  /// Nothing more comes at once.
  virtual void heard_all() noexcept = 0;
};

class lane {
 public:
  lane() = default;
  lane(const lane&) = delete;
  lane& operator=(const lane&) = delete;
  /// The client leaves.
  virtual ~lane() = default;

  virtual void submit(command c) = 0;
};

/// Commands that are not answered.
inline bool is_silent(verb v) noexcept {
  return v == verb::give_up || v == verb::arrive || v == verb::leave || v == verb::half_close ||
         v == verb::go_on;
}

}  // namespace verge::server::cluster
