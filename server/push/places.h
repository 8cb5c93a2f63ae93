// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <unordered_map>

#include <verge/clock.h>

#include "../model/task.h"
#include "hosts.h"

/// The places of one tube: how many of its deliveries may be under way, its `concurrency`.
///
/// A tube whose tasks go to one receiver has no more under way than places. If they go to several,
/// a receiver that hangs must not hold the others up: a delivery that takes far longer than usual
/// gives its place up to the next, and waits for its response beside. One to a receiver that hung
/// last time has no place from the beginning. To one receiver there are never more under way than
/// there are places, and beside the places only so many.
///
/// Ground rules: everything is under `lock_`. take() and leave() come in pairs; enter() that is
/// true is between them, and is undone by exit().
namespace verge::server::push {

class places {
 public:
  /// One delivery, from take() to leave().
  struct ticket {
    bool has_place{true};
    bool hangs{false};  ///< beside the places, as its receiver hung last time
    std::string host;   ///< while it has entered
  };

  /// `beside` is how many may wait without a place.
  explicit places(std::size_t beside);

  /// How many places are taken.
  std::size_t taken() const;
  /// How many deliveries there are, with and without a place.
  std::size_t all() const;

  void take();
  /// May the delivery go there? `own` is whether it is the tube's own receiver.
  bool enter(ticket& t, const std::string& host, std::size_t most, standing as, bool own);
  void exit(ticket& t);
  /// It has taken longer than patience(). True if its place is free now.
  bool give_up(ticket& t);
  void leave(ticket& t);

  /// After how long a delivery gives its place up.
  std::chrono::nanoseconds patience() const;
  /// A receiver has answered after so long.
  void answered(std::chrono::nanoseconds took);

 private:
  const std::size_t beside_;
  mutable std::mutex lock_;
  std::size_t taken_{0};
  std::size_t waiting_{0};  ///< without a place
  std::size_t hanging_{0};  ///< of these, to receivers that hung last time
  bool several_{false};     ///< tasks were pushed to other receivers than the tube's own
  double usual_;            ///< until a receiver answers, in nanoseconds
  std::unordered_map<std::string, std::size_t> by_host_;
};

}  // namespace verge::server::push
