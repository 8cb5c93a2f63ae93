// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

/// SipHash-2-4 of some numbers, with a key of 128 bits: a keyed pseudorandom function. Without the
/// key a value says nothing about the values of other messages, nor about the key. Tokens of leases
/// are made with it.
namespace verge::server {

struct hash_key {
  std::uint64_t first{0};
  std::uint64_t second{0};
};

/// The message is the numbers in their order, each with its lowest byte first.
template <std::size_t N>
constexpr std::uint64_t keyed_hash(const hash_key& key,
                                   const std::array<std::uint64_t, N>& message) noexcept {
  std::uint64_t v0 = key.first ^ 0x736f6d6570736575U;
  std::uint64_t v1 = key.second ^ 0x646f72616e646f6dU;
  std::uint64_t v2 = key.first ^ 0x6c7967656e657261U;
  std::uint64_t v3 = key.second ^ 0x7465646279746573U;
  const auto rounds = [&](int count) {
    for (; count > 0; --count) {
      v0 += v1;
      v1 = std::rotl(v1, 13) ^ v0;
      v0 = std::rotl(v0, 32);
      v2 += v3;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
  };
  const auto add = [&](std::uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  };
  for (const std::uint64_t word : message) add(word);
  add(std::uint64_t{(8 * N) & 0xff} << 56);  // the length in bytes
  v2 ^= 0xff;
  rounds(4);
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace verge::server
