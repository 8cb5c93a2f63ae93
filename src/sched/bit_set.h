// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace verge::detail {

/// A set of numbers below N, of which the lowest is found fast: std::bitset has no such function.
template <std::size_t N>
class bit_set {
  static_assert(N % 64 == 0);

 public:
  void set(std::size_t i) noexcept { words_[i / 64] |= bit(i); }
  void set(std::size_t i, bool in) noexcept { in ? set(i) : reset(i); }
  void reset(std::size_t i) noexcept { words_[i / 64] &= ~bit(i); }
  bool test(std::size_t i) const noexcept { return (words_[i / 64] & bit(i)) != 0; }
  bool any() const noexcept { return first() != N; }
  bool none() const noexcept { return !any(); }
  /// The lowest; N if there is none.
  std::size_t first() const noexcept {
    for (std::size_t w = 0; w < words_.size(); ++w) {
      if (words_[w] != 0) return w * 64 + static_cast<std::size_t>(std::countr_zero(words_[w]));
    }
    return N;
  }

 private:
  static constexpr std::uint64_t bit(std::size_t i) noexcept { return std::uint64_t{1} << i % 64; }

  std::array<std::uint64_t, N / 64> words_{};
};

}  // namespace verge::detail
