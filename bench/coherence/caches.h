// SPDX-License-Identifier: Apache-2.0
// A model of private caches: which core has which line, and how often one has to be fetched from
// another core.
//
// Each core has a cache of its own, without limit, and the caches are kept coherent as by MESI: a
// line is in many caches to be read, or in one to be written. A read of a line that is not there,
// and a write of one that is in another cache or not there alone, is a transfer. A line that no
// core has touched before comes from memory, which is no transfer: that costs the same with any
// number of cores. Capacity, prefetching, store buffers and the distance between cores are left
// out. So it counts sharing, which is what grows with the number of cores, and no time.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace verge::coherence {

inline constexpr std::size_t most_cores = 256;

class caches {
 public:
  void read(unsigned core, const void* address, std::size_t bytes, const void* by) {
    each_line(address, bytes, [&](std::uintptr_t n) {
      line& l = lines_[n];
      if (l.in.test(core)) return;
      if (l.in.any()) count(n, by);
      l.in.set(core);
    });
  }
  void write(unsigned core, const void* address, std::size_t bytes, const void* by) {
    each_line(address, bytes, [&](std::uintptr_t n) {
      line& l = lines_[n];
      const bool mine = l.in.test(core);
      if (l.in.count() > (mine ? 1U : 0U)) count(n, by);
      l.in.reset();
      l.in.set(core);
    });
  }

  [[nodiscard]] std::uint64_t transfers() const { return transfers_; }
  /// From here on counts anew. The caches keep their lines.
  void begin() {
    transfers_ = 0;
    by_code_.clear();
  }
  /// How many transfers each place in the code has caused.
  [[nodiscard]] const std::unordered_map<const void*, std::uint64_t>& by_code() const {
    return by_code_;
  }

 private:
  struct line {
    std::bitset<most_cores> in;
  };

  template <class F>
  static void each_line(const void* address, std::size_t bytes, F&& f) {
    constexpr std::uintptr_t size = 64;
    const auto first = reinterpret_cast<std::uintptr_t>(address) / size;
    const auto last = (reinterpret_cast<std::uintptr_t>(address) + bytes - 1) / size;
    for (auto n = first; n <= last; ++n) f(n);
  }
  void count(std::uintptr_t /*line*/, const void* by) {
    ++transfers_;
    ++by_code_[by];
  }

  std::unordered_map<std::uintptr_t, line> lines_;
  std::unordered_map<const void*, std::uint64_t> by_code_;
  std::uint64_t transfers_ = 0;
};

/// What the hooks feed, and the core that the calling thread stands for; none if negative.
extern caches* current;
extern thread_local constinit int this_core;

}  // namespace verge::coherence
