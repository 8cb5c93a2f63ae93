// SPDX-License-Identifier: Apache-2.0

#include "memory_budget.h"

#include <malloc.h>

namespace http {

bool memory_budget::take(std::size_t bytes) noexcept {
  std::size_t now = used_.load(std::memory_order_relaxed);
  do {
    if (now > limit_ || bytes > limit_ - now) return false;
  } while (!used_.compare_exchange_weak(now, now + bytes, std::memory_order_relaxed));
  note_most(now + bytes);
  return true;
}

void memory_budget::take_always(std::size_t bytes) noexcept {
  note_most(used_.fetch_add(bytes, std::memory_order_relaxed) + bytes);
}

void memory_budget::note_most(std::size_t now) noexcept {
  std::size_t most = most_.load(std::memory_order_relaxed);
  while (now > most && !most_.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
}

void memory_budget::give(std::size_t bytes) noexcept {
  const std::size_t now = used_.fetch_sub(bytes, std::memory_order_relaxed) - bytes;
  // The allocator keeps freed memory. After a peak that is most of the process's memory, so it is
  // returned to the system, once per peak.
  constexpr std::size_t rush = 8 << 20;
  std::size_t most = most_.load(std::memory_order_relaxed);
  if (most >= rush && now <= most / 10 &&
      most_.compare_exchange_strong(most, now, std::memory_order_relaxed))
    malloc_trim(0);
}

memory_share::memory_share(memory_budget& of, std::size_t always) noexcept
    : budget_(of), always_(always) {
  budget_.take_always(always);
}

bool memory_share::hold(part p, std::size_t bytes) noexcept {
  std::size_t& held = parts_[p];
  if (bytes > held) {
    if (!budget_.take(bytes - held)) return false;
  } else if (bytes < held) {
    budget_.give(held - bytes);
  }
  held = bytes;
  return true;
}

}  // namespace http
