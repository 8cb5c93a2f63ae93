// SPDX-License-Identifier: Apache-2.0

// Written after the specification of XXH3 (doc/xxhash_spec.md of https://xxhash.com).

#include "xxh3.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

namespace verge::server {

namespace {

constexpr std::uint64_t prime32_1 = 0x9E3779B1U;
constexpr std::uint64_t prime32_2 = 0x85EBCA77U;
constexpr std::uint64_t prime32_3 = 0xC2B2AE3DU;
constexpr std::uint64_t prime64_1 = 0x9E3779B185EBCA87U;
constexpr std::uint64_t prime64_2 = 0xC2B2AE3D27D4EB4FU;
constexpr std::uint64_t prime64_3 = 0x165667B19E3779F9U;
constexpr std::uint64_t prime64_4 = 0x85EBCA77C2B2AE63U;
constexpr std::uint64_t prime64_5 = 0x27D4EB2F165667C5U;
constexpr std::uint64_t prime_mix = 0x165667919E3779F9U;

/// The "default secret".
constexpr std::array<unsigned char, 192> secret{
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e};

constexpr std::size_t stripe = 64;
constexpr std::size_t shift = 8;  ///< in the secret, from one stripe to the next
constexpr std::size_t stripes_in_block = (secret.size() - stripe) / shift;

std::uint64_t word(const void* at) noexcept {
  std::uint64_t n = 0;
  std::memcpy(&n, at, sizeof n);
  return n;
}
std::uint64_t key(std::size_t at) noexcept { return word(&secret[at]); }

std::uint64_t fold(std::uint64_t a, std::uint64_t b) noexcept {
  __extension__ using wide = unsigned __int128;
  const wide product = static_cast<wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

std::uint64_t avalanche(std::uint64_t h) noexcept {
  h ^= h >> 37;
  h *= prime_mix;
  return h ^ (h >> 32);
}

std::uint64_t mix(const char* in, std::size_t at) noexcept {
  return fold(word(in) ^ key(at), word(in + 8) ^ key(at + 8));
}

/// 4 to 8.
std::uint64_t of_tiny(const char* in, std::size_t size) noexcept {
  constexpr std::uint64_t prime = 0x9FB21C651E98DF25U;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  std::memcpy(&first, in, sizeof first);
  std::memcpy(&last, in + size - sizeof last, sizeof last);
  std::uint64_t h = (last + (std::uint64_t{first} << 32)) ^ key(8) ^ key(16);
  h = (h ^ std::rotl(h, 49) ^ std::rotl(h, 24)) * prime;
  h = (h ^ ((h >> 35) + size)) * prime;
  return h ^ (h >> 28);
}

/// 9 to 16.
std::uint64_t of_small(const char* in, std::size_t size) noexcept {
  const std::uint64_t low = word(in) ^ key(24) ^ key(32);
  const std::uint64_t high = word(in + size - 8) ^ key(40) ^ key(48);
  return avalanche(size + __builtin_bswap64(low) + high + fold(low, high));
}

/// 17 to 128: in pairs from both ends.
std::uint64_t of_short(const char* in, std::size_t size) noexcept {
  std::uint64_t sum = size * prime64_1;
  for (std::size_t i = 0; i <= (size - 1) / 32; ++i) {
    sum += mix(in + 16 * i, 32 * i) + mix(in + size - 16 * (i + 1), 32 * i + 16);
  }
  return avalanche(sum);
}

/// 129 to 240.
std::uint64_t of_medium(const char* in, std::size_t size) noexcept {
  std::uint64_t sum = size * prime64_1;
  for (std::size_t i = 0; i < 8; ++i) sum += mix(in + 16 * i, 16 * i);
  sum = avalanche(sum);
  for (std::size_t i = 8; i < size / 16; ++i) sum += mix(in + 16 * i, 16 * (i - 8) + 3);
  return avalanche(sum + mix(in + size - 16, 136 - 17));
}

class stripes {
 public:
  void add(const char* in, std::size_t at) noexcept {
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      const std::uint64_t value = word(in + 8 * i);
      const std::uint64_t keyed = value ^ key(at + 8 * i);
      sums_[i ^ 1] += value;
      sums_[i] += (keyed & 0xffffffffU) * (keyed >> 32);
    }
  }
  void scramble() noexcept {
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      sums_[i] ^= sums_[i] >> 47;
      sums_[i] = (sums_[i] ^ key(secret.size() - stripe + 8 * i)) * prime32_1;
    }
  }
  std::uint64_t result(std::size_t size) const noexcept {
    std::uint64_t sum = size * prime64_1;
    for (std::size_t i = 0; i < sums_.size(); i += 2) {
      sum += fold(sums_[i] ^ key(11 + 8 * i), sums_[i + 1] ^ key(19 + 8 * i));
    }
    return avalanche(sum);
  }

 private:
  std::array<std::uint64_t, 8> sums_{prime32_3, prime64_1, prime64_2, prime64_3,
                                     prime64_4, prime32_2, prime64_5, prime32_1};
};

std::uint64_t of_long(const char* in, std::size_t size) noexcept {
  stripes sums;
  const std::size_t whole = (size - 1) / stripe;  // stripes before the last one, which may overlap
  for (std::size_t n = 0; n < whole; ++n) {
    sums.add(in + n * stripe, n % stripes_in_block * shift);
    if ((n + 1) % stripes_in_block == 0) sums.scramble();
  }
  sums.add(in + size - stripe, secret.size() - stripe - 7);
  return sums.result(size);
}

}  // namespace

std::uint64_t xxh3(std::string_view bytes) noexcept {
  if (bytes.size() < 4) return 0;
  if (bytes.size() <= 8) return of_tiny(bytes.data(), bytes.size());
  if (bytes.size() <= 16) return of_small(bytes.data(), bytes.size());
  if (bytes.size() <= 128) return of_short(bytes.data(), bytes.size());
  if (bytes.size() <= 240) return of_medium(bytes.data(), bytes.size());
  return of_long(bytes.data(), bytes.size());
}

}  // namespace verge::server
