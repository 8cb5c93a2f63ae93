// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#pragma GCC visibility push(default)

/// The slots of a timer_wheel, and the memory that they take: eight levels of 64 slots, each a
/// chain of chunks of 61 entries.
///
///   level        0          1           2           3                7
///   one slot is  65 us      4 ms        268 ms      17 s      ...    9 years
///
/// A slot's place is its number, level by level. A word per level says which of its slots are in
/// use, and one more word which levels are, so the first used slot takes two counts of zeros. What
/// comes into which slot, and when a slot is emptied, is the wheel's matter.
namespace verge::detail {

template <class Chunks>
class wheel_slots {
 public:
  static constexpr unsigned near_bits = 16;
  static constexpr unsigned digit_bits = 6;
  static constexpr unsigned token_bits = 14;
  static constexpr std::uint32_t token_mask = (1U << token_bits) - 1;
  static constexpr int levels = 8;
  static constexpr int places = levels * 64;
  static constexpr std::uint32_t per_chunk = 61;
  static constexpr std::size_t chunk_bytes = 504;

  struct entry {
    std::uint32_t id;
    std::uint32_t mark;  ///< bits 16 to 33 of the key, and the token
    [[nodiscard]] std::uint32_t token() const noexcept { return mark & token_mask; }
  };
  struct chunk {
    chunk* next;
    std::uint32_t count;
    std::uint32_t below;  ///< how many chunks there are behind it, or were
    entry entries[per_chunk];
  };
  static_assert(sizeof(chunk) <= chunk_bytes);

  struct slot {
    chunk* first = nullptr;
    std::int64_t min = 0;  ///< no later than any key in it
  };

  explicit wheel_slots(Chunks chunks) noexcept : chunks_(std::move(chunks)) {}

  slot& operator[](int place) noexcept { return slots_[place]; }
  const slot& operator[](int place) const noexcept { return slots_[place]; }

  /// Whether any slot is in use.
  [[nodiscard]] bool any() const noexcept { return used_levels_ != 0; }
  [[nodiscard]] bool uses_level(int level) const noexcept {
    return (used_levels_ >> level & 1) != 0;
  }
  /// The used slots of a level, a bit for each.
  [[nodiscard]] std::uint64_t used(int level) const noexcept { return used_[level]; }
  /// The first used slot. Lower levels come before higher ones: they lie within the wheel's own
  /// slot of those.
  [[nodiscard]] int first() const noexcept {
    const int level = std::countr_zero(used_levels_);
    return level * 64 + std::countr_zero(used_[level]);
  }

  static constexpr unsigned shift_of(int level) noexcept {
    return near_bits + digit_bits * static_cast<unsigned>(level);
  }
  /// When the slot begins, from the wheel's own time, whose higher digits it shares.
  [[nodiscard]] static std::int64_t start_of(int place, std::int64_t base) noexcept {
    const unsigned shift = shift_of(place / 64);
    const unsigned above = shift + digit_bits;
    const std::uint64_t high = above >= 64 ? 0 : static_cast<std::uint64_t>(base) >> above << above;
    // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): a place is on some level
    return static_cast<std::int64_t>(high | static_cast<std::uint64_t>(place % 64) << shift);
  }
  /// The key of an entry of a slot that begins at `start`, or an earlier time if the mark does not
  /// tell all.
  [[nodiscard]] static std::int64_t lower_bound_of(entry e, int place,
                                                   std::int64_t start) noexcept {
    const std::uint64_t block = std::uint64_t{e.mark >> token_bits} << near_bits;
    const std::uint64_t within = (std::uint64_t{1} << shift_of(place / 64)) - 1;
    return std::max<std::int64_t>(start | static_cast<std::int64_t>(block & within), 1);
  }

  /// Puts an entry into the slot that is `digit` on `level`. False if there is no memory.
  bool put(int level, int digit, std::int64_t when, std::uint32_t id,
           std::uint32_t token) noexcept {
    slot& s = slots_[level * 64 + digit];
    if (s.first == nullptr || s.first->count == per_chunk) [[unlikely]] {
      if (!add_chunk(s)) return false;
      used_[level] |= std::uint64_t{1} << digit;
      used_levels_ |= 1U << level;
      if (s.first->next == nullptr) s.min = when;
    }
    chunk& c = *s.first;
    const auto block = static_cast<std::uint64_t>(when) >> near_bits;
    c.entries[c.count++] = {id, static_cast<std::uint32_t>(block) << token_bits | token};
    if (when < s.min) s.min = when;
    return true;
  }

  /// Drops the first chunk of a slot. True if the slot is empty then, and not in use any more.
  bool drop_first_chunk(int place) noexcept {
    slot& s = slots_[place];
    chunk* const c = s.first;
    s.first = c->next;
    release_chunk(c);
    if (s.first != nullptr) return false;
    const int level = place / 64;
    // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): no place is negative
    used_[level] &= ~(std::uint64_t{1} << (place % 64));
    if (used_[level] == 0) used_levels_ &= ~(1U << level);
    return true;
  }
  void release_chunk(chunk* c) noexcept {
    if (spare_ == nullptr) {
      spare_ = c;
    } else {
      free_chunk(c);
    }
  }

  /// Has a chunk in reserve, so that the next put() succeeds. False if there is no memory.
  bool reserve() noexcept { return spare_ != nullptr || (spare_ = new_chunk()) != nullptr; }
  void free_reserve() noexcept {
    if (spare_ != nullptr) free_chunk(spare_);
    spare_ = nullptr;
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return chunk_count_ * (chunk_bytes + 8); }

  static void prefetch(const chunk* c) noexcept {
    const auto* at = reinterpret_cast<const char*>(c);
    for (std::size_t i = 0; i < chunk_bytes; i += 64) __builtin_prefetch(at + i);
  }

 private:
  bool add_chunk(slot& s) noexcept {
    chunk* c = std::exchange(spare_, nullptr);
    if (c == nullptr && (c = new_chunk()) == nullptr) return false;
    c->next = s.first;
    c->count = 0;
    c->below = s.first == nullptr ? 0 : s.first->below + 1;
    s.first = c;
    return true;
  }
  chunk* new_chunk() noexcept {
    void* const memory = chunks_.allocate();
    if (memory == nullptr) return nullptr;
    ++chunk_count_;
    return static_cast<chunk*>(memory);
  }
  void free_chunk(chunk* c) noexcept {
    --chunk_count_;
    chunks_.free(c);
  }

  [[no_unique_address]] Chunks chunks_;
  unsigned used_levels_ = 0;
  chunk* spare_ = nullptr;
  std::uint64_t used_[levels] = {};
  std::size_t chunk_count_ = 0;
  slot slots_[places];
};

}  // namespace verge::detail

#pragma GCC visibility pop
