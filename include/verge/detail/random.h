// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#pragma GCC visibility push(default)

/// Random numbers for fair choices; not for secrets.
namespace verge::detail {

/// 64 random bits: the current scheduler's, so that in simulated time the seed decides, or else the
/// calling thread's own.
std::uint64_t random_bits() noexcept;

/// As many numbers as one needs, out of one: splitmix64.
class random_sequence {
 public:
  explicit random_sequence(std::uint64_t seed) noexcept : state_(seed) {}

  std::uint64_t next() noexcept {
    state_ += 0x9e3779b97f4a7c15;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  /// A number below `bound`, each with the same chance to within 2^-32.
  std::uint32_t below(std::uint32_t bound) noexcept {
    return static_cast<std::uint32_t>(((next() >> 32) * bound) >> 32);
  }

 private:
  std::uint64_t state_;
};

}  // namespace verge::detail

#pragma GCC visibility pop
