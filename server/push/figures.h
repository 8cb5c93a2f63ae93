// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace verge::server::push {

/// For metrics. Each is a number that publishes nothing else.
struct push_figures {
  std::atomic<std::uint64_t> attempts{0};
  std::atomic<std::uint64_t> delivered{0};
  std::atomic<std::uint64_t> failed{0};
  std::atomic<std::uint64_t> refused{0};    ///< of those that failed: the address is not public
  std::atomic<std::uint64_t> postponed{0};  ///< the receiver had enough under way
  std::atomic<std::uint64_t> under_way{0};
  std::atomic<std::uint64_t> microseconds{0};  ///< all attempts together
};

}  // namespace verge::server::push
