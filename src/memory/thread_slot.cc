// SPDX-License-Identifier: Apache-2.0

#include <memory/thread_slot.h>

#include <pthread.h>

#include <array>
#include <atomic>
#include <bit>

namespace verge::detail {
namespace {

constexpr std::uint32_t word_bits = 64;

// A bit for each number in use. A thread that takes a number acquires what the thread that returned
// it released: everything at its place.
constinit std::array<std::atomic<std::uint64_t>, thread_slot_count / word_bits> taken{};
constinit std::atomic<std::uint32_t> used{0};

std::uint32_t take_lowest() noexcept {
  for (std::uint32_t w = 0; w < taken.size(); ++w) {
    std::uint64_t bits = taken[w].load(std::memory_order_relaxed);
    while (~bits != 0) {
      const auto bit = static_cast<std::uint32_t>(std::countr_one(bits));
      if (taken[w].compare_exchange_weak(bits, bits | (std::uint64_t{1} << bit),
                                         std::memory_order_acquire, std::memory_order_relaxed)) {
        return w * word_bits + bit;
      }
    }
  }
  return no_thread_slot;
}

void give_back(std::uint32_t slot) noexcept {
  taken[slot / word_bits].fetch_and(~(std::uint64_t{1} << slot % word_bits),
                                    std::memory_order_release);
}

void count_as_used(std::uint32_t slot) noexcept {
  std::uint32_t seen = used.load(std::memory_order_relaxed);
  while (seen <= slot && !used.compare_exchange_weak(seen, slot + 1, std::memory_order_relaxed)) {
  }
}

// Set when the thread has returned its number; destructors that run later have none.
constinit thread_local bool has_ended = false;

void at_thread_end(void* /*registered*/) noexcept {
  has_ended = true;
  if (this_thread_slot == no_thread_slot) return;
  give_back(this_thread_slot);
  this_thread_slot = no_thread_slot;
}

/// Registers at_thread_end() for the calling thread; returns false on failure. Not a thread_local
/// with a destructor: glibc allocates memory to register that, and aborts if there is none. A key's
/// destructor runs after those of all thread_local objects.
bool call_at_thread_end() noexcept {
  struct end_key {
    pthread_key_t key{};
    bool made{::pthread_key_create(&key, &at_thread_end) == 0};
  };
  static const end_key end;
  return end.made && ::pthread_setspecific(end.key, &has_ended) == 0;
}

}  // namespace

constinit thread_local std::uint32_t this_thread_slot = no_thread_slot;

std::uint32_t take_thread_slot() noexcept {
  if (this_thread_slot != no_thread_slot || has_ended) return this_thread_slot;
  if (!call_at_thread_end()) return no_thread_slot;
  const std::uint32_t slot = take_lowest();
  if (slot == no_thread_slot) return slot;
  count_as_used(slot);
  this_thread_slot = slot;
  return slot;
}

std::uint32_t thread_slots_used() noexcept { return used.load(std::memory_order_relaxed); }

}  // namespace verge::detail
