// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>

#pragma GCC visibility push(default)

/// due_run: the entries of a slot whose time is over, in order.
///
/// When many timers are overdue, a slot comes up of which every entry is due. A heap would sort
/// them one by one, and each of them twice: on the way in and on the way out. Here they are
/// gathered, sorted once, and taken from the front.
///
///   run.begin(start, span, 500);                 // the slot, and how many entries at most
///   run.gather(when, id, token);                 // start <= when < start + span
///   run.sort();
///   while (!run.empty()) use(run.front()), run.pop();
///
/// The times in a slot are numbers of few bits, so sorting is by digits, which takes a few
/// instructions for an entry and no branch that depends on the times. What is sorted is one word:
/// the time since the beginning of the slot, and below it where the rest of the entry is.
///
/// Gathering may be interrupted; nothing is seen of the run until sort(). Memory is kept for the
/// next run until release().
namespace verge::detail {

class due_run {
 public:
  /// So many entries at most: sorting them takes a few microseconds.
  static constexpr std::uint32_t limit = 1024;

  struct entry {
    std::int64_t when;
    std::uint32_t id;
    std::uint32_t token;
  };

  due_run() = default;
  due_run(const due_run&) = delete;
  due_run& operator=(const due_run&) = delete;
  ~due_run() { release(); }

  /// The earliest time in it; INT64_MAX if it is empty.
  [[nodiscard]] std::int64_t first() const noexcept { return first_; }
  [[nodiscard]] bool empty() const noexcept { return next_ == sorted_; }
  /// How many entries it has, sorted or not.
  [[nodiscard]] std::size_t size() const noexcept { return gathered_ - next_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return capacity_ * bytes_per_entry; }

  /// Prepares for the entries of a slot: at most `most` of them, with times from `start` on that
  /// are less than 2^`bits` later. False if there is no memory, or so many would not fit. It must
  /// be empty.
  bool begin(std::int64_t start, unsigned bits, std::size_t most) noexcept {
    if (most > limit || bits > 64 - index_bits) return false;
    if (most > capacity_ && !grow(most)) return false;
    start_ = start;
    bits_ = bits;
    next_ = sorted_ = gathered_ = 0;
    return true;
  }
  void gather(std::int64_t when, std::uint32_t id, std::uint32_t token) noexcept {
    const auto since = static_cast<std::uint64_t>(when - start_);
    keys()[gathered_] = since << index_bits | gathered_;
    names()[gathered_] = {id, token};
    ++gathered_;
  }
  /// The last entry, sorted or not.
  [[nodiscard]] entry back() const noexcept { return at(gathered_ - 1); }
  void drop_back() noexcept {
    --gathered_;
    if (gathered_ >= sorted_) return;
    sorted_ = gathered_;
    update_first();
  }
  void sort() noexcept {
    sort_by_digits(keys(), keys() + capacity_, gathered_, bits_);
    sorted_ = gathered_;
    update_first();
  }

  [[nodiscard]] entry front() const noexcept { return at(next_); }
  void pop() noexcept {
    ++next_;
    update_first();
  }
  /// Which timer comes up soon after the first one; the first's own if there is none.
  [[nodiscard]] std::uint32_t id_ahead() const noexcept {
    const std::uint32_t i = next_ + 4 < sorted_ ? next_ + 4 : next_;
    return names()[keys()[i] & index_mask].id;
  }

  /// Calls f(id, token) for each entry, and forgets them all.
  template <class F>
  void clear(F&& f) noexcept {
    for (; next_ != gathered_; ++next_) {
      const entry e = at(next_);
      f(e.id, e.token);
    }
    next_ = sorted_ = gathered_ = 0;
    update_first();
  }
  /// Frees the memory. It must be empty.
  void release() noexcept {
    ::operator delete(memory_);
    memory_ = nullptr;
    capacity_ = 0;
  }

 private:
  struct name {
    std::uint32_t id;
    std::uint32_t token;
  };
  static constexpr unsigned index_bits = 10;
  static constexpr std::uint64_t index_mask = (1U << index_bits) - 1;
  static_assert(limit == 1U << index_bits);
  /// A key, its place in the other half of the sorting, and a name.
  static constexpr std::size_t bytes_per_entry = 2 * sizeof(std::uint64_t) + sizeof(name);
  static constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();

  [[nodiscard]] std::uint64_t* keys() const noexcept {
    return static_cast<std::uint64_t*>(memory_);
  }
  [[nodiscard]] name* names() const noexcept {
    return reinterpret_cast<name*>(keys() + 2 * std::size_t{capacity_});
  }
  [[nodiscard]] entry at(std::uint32_t i) const noexcept {
    const std::uint64_t key = keys()[i];
    const name who = names()[key & index_mask];
    return {start_ + static_cast<std::int64_t>(key >> index_bits), who.id, who.token};
  }
  void update_first() noexcept { first_ = next_ == sorted_ ? none : at(next_).when; }

  bool grow(std::size_t most) noexcept {
    const auto capacity = static_cast<std::uint32_t>(std::bit_ceil(most));
    void* const memory = ::operator new(capacity* bytes_per_entry, std::nothrow);
    if (memory == nullptr) return false;
    release();
    memory_ = memory;
    capacity_ = capacity;
    return true;
  }

  static constexpr unsigned digit_bits = 8;
  static constexpr std::size_t digit_values = 1U << digit_bits;

  /// Sorts n keys by their `bits` bits above the index, from the lowest digit to the highest, from
  /// `a` to `b` and back.
  static void sort_by_digits(std::uint64_t* a, std::uint64_t* b, std::uint32_t n,
                             unsigned bits) noexcept {
    std::uint64_t* const home = a;
    for (unsigned done = 0; done < bits; done += digit_bits) {
      const unsigned shift = index_bits + done;
      const auto digit_of = [&](std::uint64_t key) { return key >> shift & (digit_values - 1); };
      std::array<std::uint16_t, digit_values> place{};
      for (std::uint32_t i = 0; i < n; ++i) ++place[digit_of(a[i])];
      if (n != 0 && place[digit_of(a[0])] == n) continue;  // all have the same digit
      std::uint16_t sum = 0;
      for (std::uint16_t& p : place) {
        const std::uint16_t count = std::exchange(p, sum);
        sum = static_cast<std::uint16_t>(sum + count);
      }
      for (std::uint32_t i = 0; i < n; ++i) b[place[digit_of(a[i])]++] = a[i];
      std::swap(a, b);
    }
    if (a != home) {
      for (std::uint32_t i = 0; i < n; ++i) home[i] = a[i];
    }
  }

  void* memory_ = nullptr;
  std::uint32_t capacity_ = 0;
  std::uint32_t next_ = 0;      ///< the first
  std::uint32_t sorted_ = 0;    ///< up to here it is in order; what comes later is being gathered
  std::uint32_t gathered_ = 0;  ///< how many there are
  std::int64_t first_ = none;
  std::int64_t start_ = 0;
  unsigned bits_ = 0;
};

}  // namespace verge::detail

#pragma GCC visibility pop
