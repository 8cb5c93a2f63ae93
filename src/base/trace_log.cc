// SPDX-License-Identifier: Apache-2.0

#include <base/trace_log.h>

namespace verge::detail {

void trace_ring::write(std::uint64_t n, const trace_event& e) noexcept {
  place& p = places_[n % size_];
  p.number.store(0, std::memory_order_relaxed);
  const std::array<std::uint64_t, words> content{
      static_cast<std::uint64_t>(e.time),        static_cast<std::uint64_t>(e.value),
      static_cast<std::uint64_t>(e.what),        reinterpret_cast<std::uintptr_t>(e.id),
      reinterpret_cast<std::uintptr_t>(e.label), reinterpret_cast<std::uintptr_t>(e.written),
      reinterpret_cast<std::uintptr_t>(e.code)};
  for (std::size_t i = 0; i < words; ++i) {
    // Release: a reader that sees it sees that the number was taken back.
    p.content[i].store(content[i], std::memory_order_release);
  }
  p.number.store(n + 1, std::memory_order_release);
}

bool trace_ring::read(std::uint64_t n, trace_event& e) const noexcept {
  const place& p = places_[n % size_];
  if (p.number.load(std::memory_order_acquire) != n + 1) return false;
  std::array<std::uint64_t, words> content;
  for (std::size_t i = 0; i < words; ++i) {
    content[i] = p.content[i].load(std::memory_order_acquire);
  }
  if (p.number.load(std::memory_order_relaxed) != n + 1) return false;
  e = {.time = static_cast<std::int64_t>(content[0]),
       .value = static_cast<std::int64_t>(content[1]),
       .what = static_cast<trace_event::kind>(content[2]),
       .id = reinterpret_cast<const void*>(content[3]),
       .label = reinterpret_cast<const char*>(content[4]),
       .written = reinterpret_cast<const char*>(content[5]),
       .code = reinterpret_cast<const void*>(content[6])};
  return true;
}

trace_ring::contents trace_ring::since(std::int64_t begin) const {
  contents all;
  const std::uint64_t end = written_.load(std::memory_order_acquire);
  const std::uint64_t kept = end > size_ ? end - size_ : 0;
  if (kept > from_) all.lost = kept - from_;
  for (std::uint64_t n = kept > from_ ? kept : from_; n < end; ++n) {
    trace_event e;
    if (!read(n, e)) {
      ++all.lost;
    } else if (e.end() >= begin) {
      all.events.push_back(e);
    }
  }
  return all;
}

}  // namespace verge::detail
