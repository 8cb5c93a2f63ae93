// SPDX-License-Identifier: Apache-2.0

// Random numbers on threads that belong to no scheduler.

#include <atomic>

#include <verge/detail/random.h>
#include <verge/detail/scheduling.h>

namespace verge::detail {

namespace {

// Different for each thread, and the same in every run.
std::uint64_t seed_of_thread() noexcept {
  static std::atomic<std::uint64_t> threads{0};
  return random_sequence(threads.fetch_add(1, std::memory_order_relaxed)).next();
}

}  // namespace

std::uint64_t random_bits() noexcept {
  if (scheduler* s = current_scheduler()) return s->random();
  thread_local random_sequence own(seed_of_thread());
  return own.next();
}

}  // namespace verge::detail
