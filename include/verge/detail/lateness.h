// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)

namespace verge {

/// How late timers were, or how long something took, as counts in buckets that grow with the time:
/// four to every power of two, so that a percentile read off it is true to within a quarter of
/// itself.
class lateness_histogram {
 public:
  static constexpr std::size_t bucket_count = 160;

  /// The bucket that a lateness in nanoseconds falls into.
  static constexpr std::size_t bucket_of(std::int64_t ns) noexcept {
    if (ns < 4) return ns < 0 ? 0 : static_cast<std::size_t>(ns);
    const auto v = static_cast<std::uint64_t>(ns);
    const auto log = static_cast<std::size_t>(std::bit_width(v)) - 1;
    const std::size_t bucket = (log - 1) * 4 + static_cast<std::size_t>((v >> (log - 2)) & 3U);
    return bucket < bucket_count ? bucket : bucket_count - 1;
  }
  /// The first lateness that is too large for the bucket.
  static constexpr std::int64_t upper_bound(std::size_t bucket) noexcept {
    if (bucket < 4) return static_cast<std::int64_t>(bucket) + 1;
    const std::size_t log = bucket / 4 + 1;
    return static_cast<std::int64_t>((5 + bucket % 4) << (log - 2));
  }

  std::uint64_t count() const noexcept {
    std::uint64_t n = 0;
    for (const std::uint64_t c : counts_) n += c;
    return n;
  }
  std::uint64_t operator[](std::size_t bucket) const noexcept { return counts_[bucket]; }

  /// The lateness, in nanoseconds, that a share q (0 to 1) of all firings did not exceed: the upper
  /// end of its bucket. 0 if nothing has fired.
  std::int64_t percentile(double q) const noexcept {
    const std::uint64_t n = count();
    if (n == 0) return 0;
    const auto rank = static_cast<std::uint64_t>(q * static_cast<double>(n - 1));
    std::uint64_t seen = 0;
    for (std::size_t b = 0; b < bucket_count; ++b) {
      seen += counts_[b];
      if (seen > rank) return upper_bound(b);
    }
    return upper_bound(bucket_count - 1);
  }

  lateness_histogram& operator+=(const lateness_histogram& other) noexcept {
    for (std::size_t b = 0; b < bucket_count; ++b) counts_[b] += other.counts_[b];
    return *this;
  }

  /// What a processor counts into: one thread writes, any thread reads.
  class recorder {
   public:
    /// `times` is for a sample that stands for so many.
    void record(std::int64_t ns, std::uint64_t times = 1) noexcept {
      auto& c = counts_[bucket_of(ns)];
      c.store(c.load(std::memory_order_relaxed) + times, std::memory_order_relaxed);
    }
    lateness_histogram read() const noexcept {
      lateness_histogram h;
      for (std::size_t b = 0; b < bucket_count; ++b) {
        h.counts_[b] = counts_[b].load(std::memory_order_relaxed);
      }
      return h;
    }

   private:
    std::array<std::atomic<std::uint64_t>, bucket_count> counts_{};
  };

 private:
  std::array<std::uint64_t, bucket_count> counts_{};
};

/// The same, of times that are not lateness.
using duration_histogram = lateness_histogram;

}  // namespace verge

#pragma GCC visibility pop
