// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "command.h"
#include "entry.h"

namespace verge::server {

/// One that gives commands: a connection. The protocols derive from it; the broker keeps what it
/// knows of the client in it.
class client {
 public:
  /// Whether leases end with the connection, as beanstalk's protocol has it. Otherwise they last
  /// until their end, whatever becomes of the connection, and are known by their tokens.
  enum class leases : std::uint8_t {
    bound,
    by_token,
    /// A part of the server: its leases end with the process, as those that are bound, and it is
    /// not counted as a client. It uses no tube, and watches those that it names.
    internal,
  };
  explicit client(leases kind = leases::bound) noexcept : leases_(kind) {}
  client(const client&) = delete;
  client& operator=(const client&) = delete;
  virtual ~client() = default;

  leases kind() const noexcept { return leases_; }

  /// Takes a reply, in the order of the commands, once what it says is durable. Called by
  /// the committer: neither may block.
  virtual void deliver(reply r) = 0;
  /// The last of the batch has been delivered.
  virtual void flush() noexcept = 0;
  /// How many bytes of replies it takes now, besides the `said` ones that are about to be
  /// delivered. With 0 its commands wait, until it gives verb::go_on; it must then do that when it
  /// can take more. A single reply may be longer. Called by the committer.
  virtual std::size_t admits(std::size_t said) noexcept {
    static_cast<void>(said);
    return most_admitted;
  }
  static constexpr std::size_t most_admitted = 4U << 20;
  /// The broker has forgotten the client: nothing more is delivered.
  virtual void left() noexcept = 0;

 private:
  friend class broker;

  const leases leases_;
  tube* used_{nullptr};
  std::vector<tube*> watched_;
  held_list held_;
  std::deque<command> behind_;  ///< given while a reserve waits, or a kick goes on, or as follows
  std::size_t said_{0};         ///< bytes of replies in this round
  bool stalled_{false};         ///< it admits no more
  std::uint64_t wait_number_{0};
  std::uint64_t wants_{0};
  alarm_queue::id wait_end_;
  bool waits_{false};
  clock::time_point wait_until_{};
  bool half_closed_{false};
  bool joined_{false};
  bool left_{false};
  bool puts_{false};
  bool works_{false};
  bool to_flush_{false};
  bool resumed_{false};
  bool kicks_{false};  ///< a kick of it goes on over several rounds
  bool follows_push_{false};
};

}  // namespace verge::server
