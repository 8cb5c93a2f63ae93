// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include <node/named_behaviours.h>

/// How often timers of each name have fired (node/named_behaviours.h).
///
/// Ground rules
///  - add() is for one thread at a time, the holder of a processor: a relaxed store. add_shared()
///    is for any.
///  - Counts come in chunks, made when one is first needed and destroyed with the object. What
///    there is no memory for is not counted.
namespace verge::detail {

class name_counts {
 public:
  name_counts() = default;
  name_counts(const name_counts&) = delete;
  name_counts& operator=(const name_counts&) = delete;
  ~name_counts() {
    for (auto& c : chunks_) delete c.load(std::memory_order_relaxed);
  }

  void add(const timer_behaviour* does, std::uint64_t n) noexcept {
    if (std::atomic<std::uint64_t>* const count = place_of(does)) {
      count->store(count->load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    }
  }
  void add_shared(const timer_behaviour* does, std::uint64_t n) noexcept {
    if (std::atomic<std::uint64_t>* const count = place_of(does)) {
      count->fetch_add(n, std::memory_order_relaxed);
    }
  }
  /// Of the behaviour with that number; 0 is for all that have no name.
  std::uint64_t read(std::size_t number) const noexcept {
    const chunk* const c = chunks_[number / per_chunk].load(std::memory_order_acquire);
    return c == nullptr ? 0 : c->counts[number % per_chunk].load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t per_chunk = 64;
  struct chunk {
    std::array<std::atomic<std::uint64_t>, per_chunk> counts{};
  };

  std::atomic<std::uint64_t>* place_of(const timer_behaviour* does) noexcept {
    const std::size_t number = named_behaviours::number_of(does);
    chunk* c = chunks_[number / per_chunk].load(std::memory_order_acquire);
    if (c == nullptr) [[unlikely]]
      c = make_chunk(chunks_[number / per_chunk]);
    return c == nullptr ? nullptr : &c->counts[number % per_chunk];
  }
  [[gnu::noinline]] static chunk* make_chunk(std::atomic<chunk*>& place) noexcept {
    std::unique_ptr<chunk> made(new (std::nothrow) chunk);
    chunk* expected = nullptr;
    if (place.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel))
      return made.release();
    return expected;
  }

  std::array<std::atomic<chunk*>, named_behaviours::most / per_chunk> chunks_{};
};

}  // namespace verge::detail
