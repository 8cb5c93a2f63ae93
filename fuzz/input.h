// SPDX-License-Identifier: Apache-2.0
// A fuzzer's input, read as choices and numbers. At its end everything is zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>

namespace verge::fuzz {

class input {
 public:
  input(const std::uint8_t* data, std::size_t size) : left_(data, size) {}

  [[nodiscard]] bool empty() const { return left_.empty(); }
  std::uint8_t byte() {
    if (left_.empty()) return 0;
    const std::uint8_t b = left_.front();
    left_ = left_.subspan(1);
    return b;
  }
  /// A number below n.
  std::size_t below(std::size_t n) { return n == 0 ? 0 : byte() % n; }
  std::uint64_t number() {
    std::uint64_t n = 0;
    for (int i = 0; i < 8; ++i) n = n << 8 | byte();
    return n;
  }
  /// Up to 2^bits, small numbers and those beside powers of two more often than others.
  std::int64_t magnitude(unsigned bits) {
    const unsigned shift = byte() % (bits + 1);
    const std::int64_t power = std::int64_t{1} << shift;
    switch (byte() % 4) {
      case 0:
        return power;
      case 1:
        return power - 1;
      case 2:
        return power + 1;
      default:
        return power + static_cast<std::int64_t>(number() % static_cast<std::uint64_t>(power));
    }
  }
  std::string_view rest() const {
    return {reinterpret_cast<const char*>(left_.data()), left_.size()};
  }

 private:
  std::span<const std::uint8_t> left_;
};

/// Ends the program, and the fuzzer keeps the input.
inline void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "verge: not true: %s\n", what);
  std::abort();
}

}  // namespace verge::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
