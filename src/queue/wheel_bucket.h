// SPDX-License-Identifier: Apache-2.0
// wheel_bucket: the timers of one bucket of a timing wheel, in chunks; and wheel_chunks, the memory
// of all buckets of a wheel.
//
//   bucket: its chunks, in a ring; and those of them that have a free slot, the newest first
//     |
//     |     heads, in one dense array                 entries, in chunks of 512 bytes
//     '-->  | links | taken: 1 0 1 1 ... |            | when, timer | when, timer | ...
//           | links | taken: 1 1 1 1 ... |            | when, timer | when, timer | ...
//
//   timer: 8 bytes, which say its chunk, its slot and its bucket
//
// Why not an intrusive list: removing a timer would write to its two neighbours, and among a
// million timers these are in no cache. Here stopping a timer only clears its bit in the head of
// its chunk; the heads of a million timers are 650 KB, and stay in the cache. The entry is left
// unchanged. The next timer of the bucket, which comes soon, takes its slot, so the slot's line is
// prefetched. And a timer needs only 8 bytes, so that its whole node is one line.
//
// Promises: adding and removing a timer takes constant time. Timers are returned in the order in
// which they were added, as long as none is removed from the middle. An empty chunk is freed, so a
// live timer costs a chunk at most, and 17 bytes if few are stopped. Only put() needs memory.
//
// It knows neither threads, nor the clock, nor when a bucket expires.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include <memory/slab_pool.h>
#include <queue/due_timer.h>

namespace verge::detail {

/// A timer's place in a bucket.
struct wheel_hook {
  std::uint32_t slot{0};    ///< the number of its chunk x 32 + its slot in that
  std::uint32_t bucket{0};  ///< 1 + the number of its bucket; 0 while it is in none
};

struct wheel_bucket {
  static constexpr std::uint32_t none = UINT32_MAX;

  [[nodiscard]] bool empty() const noexcept { return size == 0; }

  std::uint32_t first{none};  ///< its chunks, see wheel_chunks
  std::uint32_t open{none};   ///< those that have a free slot
  std::int64_t expiry{0};
  std::uint32_t size{0};      ///< number of timers
  std::uint32_t index{none};  ///< its index in the delay queue, if it is there
};

/// The chunks of all buckets of a wheel, and the operations on them.
class wheel_chunks {
 public:
  using due = due_timer<wheel_hook>;

  /// Throws std::bad_alloc.
  explicit wheel_chunks(page_source& pages)
      : pool_(sizeof(chunk), alignof(chunk), nullptr, pages) {}

  [[nodiscard]] std::size_t bytes() const noexcept {
    return count_ * pool_.stride() + heads_.capacity() * sizeof(head);
  }

  [[nodiscard]] static bool waits(const wheel_hook& t) noexcept { return t.bucket != 0; }
  /// The number of the bucket that it is in.
  [[nodiscard]] static std::uint32_t bucket_of(const wheel_hook& t) noexcept {
    return t.bucket - 1;
  }

  /// Puts a timer into a bucket and records the place in its hook. Returns false if there is no
  /// memory; then nothing has changed.
  bool put(wheel_bucket& b, std::uint32_t bucket_number, due t) noexcept {
    if (b.open == none && !add_chunk(b)) [[unlikely]]
      return false;
    const std::uint32_t c = b.open;
    head& h = heads_[c];
    const auto slot = static_cast<std::uint32_t>(std::countr_one(h.taken));
    h.taken |= std::uint32_t{1} << slot;
    if (h.taken == all_taken) remove_from<&head::open>(b.open, c);
    at(c).entries[slot] = {t.when,
                           reinterpret_cast<std::uintptr_t>(t.timer) | (t.periodic ? 1U : 0U)};
    *t.timer = {.slot = c * slot_unit + slot, .bucket = 1 + bucket_number};
    ++b.size;
    return true;
  }

  /// Frees the slot that a hook names, or named; the hook is not accessed.
  void remove(wheel_bucket& b, const wheel_hook& t) noexcept {
    const std::uint32_t c = t.slot / slot_unit;
    const std::uint32_t slot = t.slot % slot_unit;
    __builtin_prefetch(&at(c).entries[slot], 1);  // for the next timer
    free_slot(b, c, slot);
  }

  /// The first timer of a non-empty bucket.
  [[nodiscard]] due front(const wheel_bucket& b) const noexcept {
    const auto slot = static_cast<std::uint32_t>(std::countr_zero(heads_[b.first].taken));
    prefetch_after(b.first, slot);
    return due_of(at(b.first).entries[slot]);
  }
  /// Frees its slot; its hook is not accessed.
  void pop_front(wheel_bucket& b) noexcept {
    free_slot(b, b.first, static_cast<std::uint32_t>(std::countr_zero(heads_[b.first].taken)));
  }

  /// Removes all timers from a bucket. Their hooks still name it.
  static wheel_bucket detach(wheel_bucket& b) noexcept {
    wheel_bucket all;
    all.first = std::exchange(b.first, none);
    all.open = std::exchange(b.open, none);
    all.size = std::exchange(b.size, 0);
    return all;
  }
  /// Returns the remaining timers to it.
  void attach(wheel_bucket& b, wheel_bucket left) noexcept {
    while (left.first != none) {
      const std::uint32_t c = left.first;
      remove_from<&head::all>(left.first, c);
      push_back<&head::all>(b.first, c);
      if (heads_[c].taken != all_taken) push_front<&head::open>(b.open, c);
    }
    b.size += left.size;
  }

  /// Calls f(due) for all timers of a bucket.
  template <class F>
  void for_each(const wheel_bucket& b, F&& f) const {
    for (std::uint32_t c = b.first; c != none; c = after<&head::all>(b.first, c)) {
      for (std::uint32_t slot = 0; slot < slots; ++slot) {
        if ((heads_[c].taken >> slot & 1) != 0) f(due_of(at(c).entries[slot]));
      }
    }
  }

  /// Returns whether rings, bits and hooks are consistent; counts the timers and the chunks.
  [[nodiscard]] bool verify(const wheel_bucket& b, std::uint32_t bucket_number, std::size_t& timers,
                            std::size_t& chunks) const noexcept {
    std::size_t mine = 0;
    std::size_t open = 0;
    for (std::uint32_t c = b.first; c != none; c = after<&head::all>(b.first, c), ++chunks) {
      const head& h = heads_[c];
      if (heads_[h.all.next].all.prev != c || h.taken == 0 || h.taken > all_taken) return false;
      open += h.taken != all_taken;
      for (std::uint32_t slot = 0; slot < slots; ++slot) {
        if ((h.taken >> slot & 1) == 0) continue;
        ++mine;
        const wheel_hook& t = *hook_of(at(c).entries[slot]);
        if (t.slot != c * slot_unit + slot || t.bucket != 1 + bucket_number) return false;
      }
    }
    for (std::uint32_t c = b.open; c != none; c = after<&head::open>(b.open, c), --open) {
      if (heads_[heads_[c].open.next].open.prev != c || heads_[c].taken == all_taken) return false;
    }
    timers += mine;
    return mine == b.size && open == 0;
  }
  /// The number of chunks in use.
  [[nodiscard]] std::size_t count() const noexcept { return count_; }

 private:
  static constexpr std::uint32_t none = wheel_bucket::none;
  static constexpr std::uint32_t slots = 31;
  static constexpr std::uint32_t all_taken = (std::uint32_t{1} << slots) - 1;
  static constexpr std::uint32_t slot_unit = 32;
  static constexpr std::uint32_t most_chunks = UINT32_MAX / slot_unit;
  /// How many timers ahead to prefetch.
  static constexpr std::uint32_t ahead = 6;

  struct entry {
    std::int64_t when;
    std::uintptr_t
        timer;  ///< the address of its hook, and in the lowest bit whether it is periodic
  };
  struct alignas(16) chunk {
    entry entries[slots];
  };
  static constexpr std::size_t stride = sizeof(chunk) + alignof(chunk);
  static_assert(stride == 512);

  struct links {
    std::uint32_t prev;
    std::uint32_t next;
  };
  struct head {
    links all;                ///< the ring of its bucket
    links open;               ///< the ring of those with a free slot, if it has one
    std::uint32_t taken = 0;  ///< one bit for each slot
  };

  /// A chunk's number is its index in the slab without gaps, so that heads_ has no gaps.
  static constexpr unsigned number_bits = std::countr_zero(slab_pool::chunk_bytes / stride);
  static constexpr std::uint32_t number_mask = (1U << number_bits) - 1;
  static constexpr unsigned index_bits = 16;
  static std::uint32_t number_of(std::uint32_t index) noexcept {
    return index >> index_bits << number_bits | (index & number_mask);
  }
  chunk& at(std::uint32_t number) const noexcept {
    return *static_cast<chunk*>(
        pool_.at(number >> number_bits << index_bits | (number & number_mask)));
  }

  static wheel_hook* hook_of(const entry& e) noexcept {
    return reinterpret_cast<wheel_hook*>(e.timer & ~std::uintptr_t{1});
  }
  static due due_of(const entry& e) noexcept {
    return {.timer = hook_of(e), .when = e.when, .periodic = (e.timer & 1) != 0};
  }

  // Rings of chunks; a bucket stores the first.

  template <links head::*Ring>
  void push_back(std::uint32_t& first, std::uint32_t c) noexcept {
    if (first == none) {
      heads_[c].*Ring = {c, c};
      first = c;
      return;
    }
    const std::uint32_t last = (heads_[first].*Ring).prev;
    heads_[c].*Ring = {last, first};
    (heads_[last].*Ring).next = c;
    (heads_[first].*Ring).prev = c;
  }
  template <links head::*Ring>
  void push_front(std::uint32_t& first, std::uint32_t c) noexcept {
    push_back<Ring>(first, c);
    first = c;
  }
  template <links head::*Ring>
  void remove_from(std::uint32_t& first, std::uint32_t c) noexcept {
    const links l = heads_[c].*Ring;
    (heads_[l.prev].*Ring).next = l.next;
    (heads_[l.next].*Ring).prev = l.prev;
    if (first == c) first = l.next == c ? none : l.next;
  }
  /// The next one; `none` after the last.
  template <links head::*Ring>
  [[nodiscard]] std::uint32_t after(std::uint32_t first, std::uint32_t c) const noexcept {
    const std::uint32_t next = (heads_[c].*Ring).next;
    return next == first ? none : next;
  }

  void free_slot(wheel_bucket& b, std::uint32_t c, std::uint32_t slot) noexcept {
    head& h = heads_[c];
    const bool was_full = h.taken == all_taken;
    h.taken &= ~(std::uint32_t{1} << slot);
    --b.size;
    if (h.taken == 0) [[unlikely]] {
      remove_from<&head::all>(b.first, c);
      remove_from<&head::open>(b.open, c);
      pool_.free(&at(c));
      --count_;
    } else if (was_full) {
      push_front<&head::open>(b.open, c);
    }
  }

  bool add_chunk(wheel_bucket& b) noexcept {
    void* const memory = pool_.try_allocate();
    if (memory == nullptr) return false;
    const std::uint32_t c = number_of(slab_pool::index(memory));
    if (c >= heads_.size() && !add_heads(c + 1)) {
      pool_.free(memory);
      return false;
    }
    ++count_;
    push_back<&head::all>(b.first, c);
    push_front<&head::open>(b.open, c);
    return true;
  }

  bool add_heads(std::uint32_t n) noexcept {
    if (n > most_chunks) return false;
    try {
      heads_.resize(n);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  /// A thread that removes one timer usually removes more and accesses them. A free slot holds an
  /// old address, or none; it is only prefetched.
  void prefetch_after(std::uint32_t c, std::uint32_t slot) const noexcept {
    const chunk& next = at(heads_[c].all.next);
    if (slot + ahead < slots) {
      __builtin_prefetch(hook_of(at(c).entries[slot + ahead]), 1);
    } else {
      __builtin_prefetch(hook_of(next.entries[slot + ahead - slots]), 1);
    }
    if (slot < slots / 4) __builtin_prefetch(&next.entries[slot * 4]);
  }

  slab_pool pool_;
  std::vector<head> heads_;  ///< by the number of the chunk
  std::size_t count_{0};     ///< chunks in use
};

}  // namespace verge::detail
