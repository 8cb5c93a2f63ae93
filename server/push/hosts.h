// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include <verge/clock.h>

#include "../model/task.h"

/// How many deliveries each receiver has under way, and whether it may have another one.
///
/// A receiver (a host with its port) has a share: the limit at first, half of what it was after
/// each delivery that it let hang, twice as much after each that it answered. All receivers
/// together have a limit as well. As room gets scarce a receiver gets less of it, an eighth of what
/// is left; the last eighth is for receivers that answer, and those that hung last time have at
/// most half of all. So receivers that hang, however many, leave room for those that do not.
///
/// What may not be sent now is told when to come back: after those that were told so before, one
/// turn after the other. So a million tasks for a receiver that is slow are not tried again and
/// again.
///
/// Ground rules: everything is under `lock_`. enter() that is true and leave() come in pairs.
namespace verge::server::push {

struct host_limits {
  std::size_t all{4'096};
  std::size_t each{64};
  std::uint32_t rate{0};  ///< of each, a second; 0: no limit
};

/// What is known of a receiver: how its last delivery ended.
enum class standing : std::uint8_t { answers, unknown, hangs };

/// How a delivery ended: with a response, without one in time, or otherwise.
enum class ending : std::uint8_t { answered, hung, other };

class host_table {
 public:
  explicit host_table(host_limits l) : limits_(l) {}

  /// May a delivery begin? If so, `as` is what is known of the receiver, to be given to leave(). If
  /// not, `come_back` is in how long to ask again.
  bool enter(const std::string& host, clock::time_point now, standing& as, nanoseconds& come_back);
  /// It has ended, and took so long.
  void leave(const std::string& host, standing as, ending how, nanoseconds took);
  /// In how long to ask again, for one that may not begin for another reason.
  nanoseconds turn(const std::string& host, clock::time_point now);

  standing of(const std::string& host) const;
  std::size_t under_way() const;
  const host_limits& limits() const noexcept { return limits_; }

 private:
  struct state {
    explicit state(std::size_t limit) : share(limit) {}
    std::size_t under_way{0};
    std::size_t share;
    standing known{standing::unknown};
    double usual{0};                 ///< how long a delivery takes, in nanoseconds
    clock::time_point next_start{};  ///< by the rate
    clock::time_point last_turn{};   ///< that was given to one that has to come back
    clock::time_point seen{};
  };
  state& find(const std::string& host, clock::time_point now);
  bool has_room(const state& s) const;
  nanoseconds next_turn(state& s, clock::time_point now) const;
  std::chrono::nanoseconds step() const;
  void forget_idle(clock::time_point now);

  const host_limits limits_;
  mutable std::mutex lock_;
  std::unordered_map<std::string, state> hosts_;
  std::size_t under_way_{0};
  std::array<std::size_t, 3> by_standing_{};  ///< of those under way, as they began
  std::size_t sweep_at_{1'024};
};

}  // namespace verge::server::push
