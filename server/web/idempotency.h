// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>

#include "http1/response.h"

/// Responses by Idempotency-Key: a client that did not get an answer sends its request again, and
/// gets the answer to the first one.
///
/// This is for responses with bodies, those of reserve: they are kept in memory, for a day, as many
/// as fit, and a restart forgets them. All others are the broker's to keep, on disk (command.h,
/// once).
///
/// Ground rules: everything is under `lock_`. begin() and end() come in pairs, on any thread.
namespace verge::server::web {

class idempotency {
 public:
  struct limits {
    std::chrono::seconds age{86'400};
    std::size_t bytes{64U << 20};
  };
  enum class found : std::uint8_t {
    nothing,  ///< it is the first: call end() with the answer
    answer,   ///< `stored` is the answer
    other,    ///< the key was used for another request
    busy,     ///< the first one is not answered yet
  };

  explicit idempotency(limits l) : limits_(l) {}

  /// `print` identifies the request: method, target and body.
  found begin(const std::string& key, const std::string& print, http::response& stored);
  /// A response that is no success is not kept: the client may try again with the same key.
  void end(const std::string& key, const http::response& r, bool success);

 private:
  using clock = std::chrono::steady_clock;
  struct entry {
    std::string print;
    bool answered{false};
    http::response answer;
    std::size_t bytes{0};
    clock::time_point at;
  };
  void forget_old(clock::time_point now);

  const limits limits_;
  std::mutex lock_;
  std::unordered_map<std::string, entry> entries_;
  std::deque<std::pair<std::string, clock::time_point>> order_;  ///< of those that are answered
  std::size_t bytes_{0};
};

}  // namespace verge::server::web
