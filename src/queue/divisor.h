// SPDX-License-Identifier: Apache-2.0
// divisor: a divisor that is known only at run time and used often. Multiplies by its inverse,
// which takes a third of the time of a division.
#pragma once

#include <cstdint>

namespace verge::detail {

class divisor {
 public:
  /// `d` must be positive.
  explicit constexpr divisor(std::int64_t d) noexcept
      : d_(static_cast<std::uint64_t>(d)), inverse_(UINT64_MAX / d_) {}

  /// `n / d` for a non-negative n.
  [[nodiscard]] constexpr std::int64_t quotient(std::int64_t number) const noexcept {
    // The inverse is rounded down by less than one part in 2^64: for n below 2^63 the product is
    // the quotient, or one less.
    const auto n = static_cast<std::uint64_t>(number);
    auto q = static_cast<std::uint64_t>(static_cast<wide>(n) * inverse_ >> 64);
    if (n - q * d_ >= d_) ++q;
    return static_cast<std::int64_t>(q);
  }
  [[nodiscard]] constexpr std::int64_t remainder(std::int64_t n) const noexcept {
    return n - quotient(n) * static_cast<std::int64_t>(d_);
  }

 private:
  __extension__ using wide = unsigned __int128;

  std::uint64_t d_;
  std::uint64_t inverse_;
};

}  // namespace verge::detail
