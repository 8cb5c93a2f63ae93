// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verge::detail {

/// Random numbers for choices that have to be spread, not unpredictable: xorshift64.
class xorshift {
 public:
  /// The state is made odd, because zero would stay zero.
  explicit constexpr xorshift(std::uint64_t seed) noexcept : state_(seed | 1) {}

  std::uint64_t next() noexcept {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }

 private:
  std::uint64_t state_;
};

}  // namespace verge::detail
