// SPDX-License-Identifier: Apache-2.0
// quad_heap: a 4-ary min-heap of timers by time, made for few cache misses.
//
//   quad_heap<timer_node> heap;
//   heap.push(when, &node);                  // O(log n); O(1) on average for random times
//   while (!heap.empty() && heap.front().when <= now) {
//     timer_node* due = heap.front().node;
//     heap.pop();                            // O(log n)
//     fire(due);
//   }
//
// Why it is built so. A large heap waits for memory and not for comparisons, so everything here is
// about the cache lines that an operation touches, and when it asks for them:
//  - An entry holds the key beside the pointer. Finding a timer's place looks at no timer.
//  - A node has four children, and they share one 64-byte line: the array starts on a line boundary
//    and the root stands in its fourth slot, so that the children of i, 4i+1 to 4i+4, begin a line.
//    A level costs one line, and there are half as many levels as in a binary heap.
//  - On the way down the lines of all grandchildren are asked for before the children are compared:
//    the next level is coming while it is still open which part of it will be needed.
//  - The least of four is found without a branch. Which child it is cannot be predicted, and a
//    processor that has guessed wrong drops what it had begun of the next operation.
//  - A timer that has come to within one step of the root will soon fire, and pop() asks for its
//    line, so that the thread that fires it does not wait. No timer is read: a stale pointer is
//    harmless.
//  - A large array is on huge pages and grows without copying (heap_memory.h).
// docs/quad-heap.md has the figures for each.
//
// It knows no thread and no clock: the owner locks, and a key is a number. Equal keys come out in
// any order.
//
// Exact removal must know where an entry is. An Index policy, Index::set(T&, std::size_t), is told
// each time an entry takes a place; the default does nothing and costs nothing. If the policy also
// has Index::get(const T&), verify() checks that every node knows its place. A node that has left
// the heap is not told: the caller that removes it knows.
//
// Promises: only reserve() and push() may fail; if they throw std::bad_alloc the heap is as it was.
// push() does not allocate while size() < capacity(). Memory is freed when shrink() is called, and
// at no other time.
#pragma once

#include <algorithm>
#include <cassert>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <verge/detail/heap_memory.h>

#pragma GCC visibility push(default)

namespace verge::detail {

/// The Index of a heap whose nodes need not know where they are.
struct no_index {
  template <class T>
  static void set(T&, std::size_t) noexcept {}
};

/// The same for a heap of numbers in place of addresses: nothing is fetched ahead from them.
struct numbers_only : no_index {};

/// What filter() is told about an entry it showed.
enum class filter_verdict : bool { drop, keep };

template <class T, class Index = no_index, class Memory = heap_memory>
class quad_heap {
 public:
  struct entry {
    std::int64_t when;
    T* node;
  };
  static_assert(sizeof(entry) == 16 && std::is_trivially_copyable_v<entry>);

  quad_heap() = default;
  quad_heap(const quad_heap&) = delete;
  quad_heap& operator=(const quad_heap&) = delete;
  quad_heap(quad_heap&& other) noexcept { swap(other); }
  quad_heap& operator=(quad_heap&& other) noexcept {
    quad_heap(std::move(other)).swap(*this);
    return *this;
  }
  ~quad_heap() { release(); }

  void swap(quad_heap& other) noexcept {
    std::swap(root_, other.root_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// How many entries fit before push() allocates.
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  /// The memory held, in bytes.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_of(capacity_); }

  /// Entry i of the heap, 0 being the root. The order of the others is the heap's own.
  [[nodiscard]] const entry& operator[](std::size_t i) const noexcept {
    assert(i < size_);
    return root_[i];
  }
  /// An entry with the smallest key. The heap must not be empty.
  [[nodiscard]] const entry& front() const noexcept { return (*this)[0]; }
  [[nodiscard]] const entry* begin() const noexcept { return root_; }
  [[nodiscard]] const entry* end() const noexcept { return root_ + size_; }

  /// Makes room for n entries in all.
  void reserve(std::size_t n) {
    if (n > capacity_) grow(n);
  }

  void push(std::int64_t when, T* node) {
    if (size_ == capacity_) grow(size_ + 1);
    sift_up(size_++, {when, node});
  }

  /// Removes the root. The heap must not be empty.
  void pop() noexcept {
    assert(size_ != 0);
    const entry last = root_[--size_];
    if (size_ < 5) {
      if (size_ != 0) sift_down(0, last);
      return;
    }
    const std::size_t next = least_of_four(1);
    if (last.when <= root_[next].when) return put(0, last);
    put(0, root_[next]);
    sift_down(next, last);
    if constexpr (has_addresses)
      __builtin_prefetch(root_[next].node);  // one step from the root now: due soon
  }

  /// Removes entry i and returns the smallest index at which another entry stands now; size() if i
  /// was the last. A scan that removes as it goes continues from there and misses none: the entry
  /// that fills the gap may belong above i, and then stands where the scan has been already (Go
  /// #47762).
  std::size_t remove(std::size_t i) noexcept {
    assert(i < size_);
    const entry last = root_[--size_];
    if (i == size_) return i;
    return place(i, last);
  }

  /// Gives entry i a new key, and returns the smallest index at which another entry stands now; i
  /// if none does.
  std::size_t update(std::size_t i, std::int64_t when) noexcept {
    assert(i < size_);
    return place(i, {when, root_[i].node});
  }

  /// Shows every entry once to `suspect(const entry&)`, and those of which that is true to
  /// `judge(entry&)`, which may change the key and returns a filter_verdict; restores the order;
  /// all in linear time. Returns how many were dropped. Neither may throw or touch the heap.
  ///
  /// One pass from the last entry to the root. Below and behind i all is in order, and what fills a
  /// gap at i comes from there: so whatever stands at i then need only sink, and nothing that is
  /// yet to be shown moves. Most entries have no children, or later ones, and stay in place.
  ///
  /// `suspect` is likely to look at the node: nodes are asked for ahead. Its answers are collected
  /// before anything is done about them, without a branch, for they cannot be predicted.
  template <class Suspect, class Judge>
  std::size_t filter(Suspect&& suspect, Judge&& judge) noexcept {
    constexpr std::size_t block = 64;
    const std::size_t before = size_;
    for (std::size_t end = size_; end != 0;) {
      const std::size_t begin = end < block ? 0 : end - block;
      std::size_t found[block];
      const std::size_t count = begin >= ahead ? collect<true>(suspect, begin, end, found)
                                               : collect<false>(suspect, begin, end, found);
      std::size_t i = end;
      for (std::size_t k = 0; k < count; ++k) {
        sink_between(found[k] + 1, i);
        i = found[k];
        if (judge(root_[i]) == filter_verdict::drop && i != --size_) put(i, root_[size_]);
        sink(i);
      }
      sink_between(begin, i);
      end = begin;
    }
    return before - size_;
  }

  /// Restores the order whatever it was, in linear time: from the last parent to the root, each
  /// sinks to its place.
  void rebuild() noexcept {
    if constexpr (tracked) {
      for (std::size_t i = 0; i < size_; ++i) tell(i);
    }
    if (size_ < 2) return;
    for (std::size_t i = parent(size_ - 1) + 1; i-- != 0;) sift_down(i, root_[i]);
  }

  /// Forgets all entries and keeps the memory.
  void clear() noexcept { size_ = 0; }

  /// Gives memory back if less than a quarter of it is used, and keeps room for twice what is
  /// there, so that a heap whose size goes up and down by less than that allocates nothing. Returns
  /// whether it did; cheap if not.
  bool shrink() noexcept {
    if (root_ == nullptr || size_ >= capacity_ / 4) return false;
    if (size_ == 0) {
      release();
      return true;
    }
    const std::size_t capacity = capacity_for(2 * size_);
    if (capacity >= capacity_) return false;
    try {
      resize(capacity);
      return true;
    } catch (const std::bad_alloc&) {
      return false;  // there is no smaller block; the large one stays
    }
  }

  /// Whether the order holds, and every node knows its place where that can be asked.
  [[nodiscard]] bool verify() const noexcept { return !first_violation(); }

  /// What verify() found: the first entry that is earlier than its parent or whose node has another
  /// index.
  [[nodiscard]] std::optional<std::size_t> first_violation() const noexcept {
    for (std::size_t i = 0; i < size_; ++i) {
      if (i != 0 && root_[i].when < root_[parent(i)].when) return i;
      if (!knows_place(i)) return i;
    }
    return std::nullopt;
  }

  /// first_violation() in words; empty if there is none.
  [[nodiscard]] std::string describe_violation() const {
    const std::optional<std::size_t> bad = first_violation();
    if (!bad) return {};
    const std::size_t i = *bad;
    std::string text = "entry " + std::to_string(i) + " of " + std::to_string(size_) + " (when " +
                       std::to_string(root_[i].when) + ")";
    if (knows_place(i)) {
      return text + " is earlier than its parent " + std::to_string(parent(i)) + " (when " +
             std::to_string(root_[parent(i)].when) + ")";
    }
    if constexpr (readable)
      text += " has a node whose index is " + std::to_string(Index::get(*root_[i].node));
    return text;
  }

 private:
  /// The root's slot: three before it stay empty so that every group of four children begins a
  /// line.
  static constexpr std::size_t lead = 3;
  static constexpr std::size_t first_capacity = 16 - lead;

  static constexpr bool tracked = !std::is_base_of_v<no_index, Index>;
  static constexpr bool has_addresses = !std::is_same_v<Index, numbers_only>;
  static constexpr bool readable = requires(const T& node) {
    { Index::get(node) } -> std::convertible_to<std::size_t>;
  };

  static constexpr std::size_t parent(std::size_t i) noexcept { return (i - 1) / 4; }
  static constexpr std::size_t first_child(std::size_t i) noexcept { return 4 * i + 1; }
  [[nodiscard]] std::size_t first_leaf() const noexcept { return (size_ + 2) / 4; }

  static constexpr std::size_t bytes_of(std::size_t capacity) noexcept {
    return capacity == 0 ? 0 : (capacity + lead) * sizeof(entry);
  }
  /// The capacity of the block that holds n entries: at least n, and what is left over by rounding.
  static std::size_t capacity_for(std::size_t n) noexcept {
    return Memory::round_up(bytes_of(std::max(n, first_capacity))) / sizeof(entry) - lead;
  }

  /// Room for n entries or twice as many as now, whichever is more.
  void grow(std::size_t n) {
    constexpr std::size_t most = std::numeric_limits<std::size_t>::max() / sizeof(entry) / 4;
    if (n > most) throw std::bad_alloc();
    resize(capacity_for(std::max(n, 2 * capacity_ + lead)));
  }

  void resize(std::size_t capacity) {
    void* const block = root_ == nullptr ? Memory::allocate(bytes_of(capacity))
                                         : Memory::resize(root_ - lead, bytes(), bytes_of(capacity),
                                                          (size_ + lead) * sizeof(entry));
    root_ = static_cast<entry*>(block) + lead;
    capacity_ = capacity;
  }

  void release() noexcept {
    if (root_ != nullptr) Memory::release(root_ - lead, bytes());
    root_ = nullptr;
    size_ = capacity_ = 0;
  }

  void put(std::size_t i, entry e) noexcept {
    root_[i] = e;
    tell(i);
  }
  void tell(std::size_t i) noexcept {
    if constexpr (tracked) Index::set(*root_[i].node, i);
  }
  [[nodiscard]] bool knows_place([[maybe_unused]] std::size_t i) const noexcept {
    if constexpr (readable) {
      return static_cast<std::size_t>(Index::get(*root_[i].node)) == i;
    } else {
      return true;
    }
  }

  /// Puts e where it belongs, given that slot i is free and the rest is in order. Returns the
  /// smallest index changed.
  std::size_t place(std::size_t i, entry e) noexcept {
    if (i != 0 && e.when < root_[parent(i)].when) return sift_up(i, e);
    sift_down(i, e);
    return i;
  }

  std::size_t sift_up(std::size_t i, entry e) noexcept {
    while (i != 0) {
      const std::size_t above = parent(i);
      if (root_[above].when <= e.when) break;
      put(i, root_[above]);
      i = above;
    }
    put(i, e);
    return i;
  }

  void sift_down(std::size_t i, entry e) noexcept {
    const std::size_t with_four_children = (size_ - 1) / 4;
    const std::size_t with_all_grandchildren = size_ < 5 ? 0 : (size_ - 5) / 16;
    while (i < with_four_children) {
      if (i < with_all_grandchildren) fetch_grandchildren(i);
      const std::size_t least = least_of_four(first_child(i));
      if (e.when <= root_[least].when) return put(i, e);
      put(i, root_[least]);
      i = least;
    }
    // One parent at most has one to three children, and they have none.
    const std::size_t first = first_child(i);
    if (first < size_) {
      std::size_t least = first;
      for (std::size_t c = first + 1; c < size_; ++c) {
        if (root_[c].when < root_[least].when) least = c;
      }
      if (root_[least].when < e.when) {
        put(i, root_[least]);
        i = least;
      }
    }
    put(i, e);
  }

  /// filter() asks for nodes so many entries ahead.
  static constexpr std::size_t ahead = 16;

  /// Puts the indices of those in [begin, end) that are suspect into `found`, from the last to the
  /// first, and returns how many there are.
  template <bool Fetch, class Suspect>
  std::size_t collect(Suspect& suspect, std::size_t begin, std::size_t end,
                      std::size_t* found) const noexcept {
    const entry* const root = root_;
    std::size_t count = 0;
    for (std::size_t i = end; i-- != begin;) {
      if constexpr (Fetch && has_addresses) __builtin_prefetch(root[i - ahead].node);
      found[count] = i;
      count += std::size_t{suspect(root[i])};
    }
    return count;
  }

  /// sink() for each in [begin, end), from the last to the first. Leaves have nowhere to go.
  void sink_between(std::size_t begin, std::size_t end) noexcept {
    for (std::size_t i = std::min(end, first_leaf()); i > begin;) sink(--i);
  }

  /// Entry i goes to its place, which is where it stands or below.
  void sink(std::size_t i) noexcept {
    const std::size_t first = first_child(i);
    if (first >= size_) return;
    // Nothing is written and nothing asked for if it is right.
    if (first + 4 <= size_ && root_[i].when <= root_[least_of_four(first)].when) return;
    sift_down(i, root_[i]);
  }

  /// Inlined by force: g++ takes a function that only prefetches for one without effect, and where
  /// it has not inlined it, as at -O2, it removes the call.
  [[gnu::always_inline]] void fetch_grandchildren(std::size_t i) const noexcept {
    const entry* const group = root_ + first_child(first_child(i));
    __builtin_prefetch(group);
    __builtin_prefetch(group + 4);
    __builtin_prefetch(group + 8);
    __builtin_prefetch(group + 12);
  }

  /// Keys are compared as values and positions put together from the outcomes. Written any other
  /// way that was tried, with std::min as well, g++ 12 makes branches of it.
  [[nodiscard]] std::size_t least_of_four(std::size_t first) const noexcept {
    const entry* const group = root_ + first;
    const std::int64_t k0 = group[0].when;
    const std::int64_t k1 = group[1].when;
    const std::int64_t k2 = group[2].when;
    const std::int64_t k3 = group[3].when;
    const std::size_t left = k1 < k0;
    const std::size_t right = std::size_t{2} + (k3 < k2);
    const std::int64_t left_key = k1 < k0 ? k1 : k0;
    const std::int64_t right_key = k3 < k2 ? k3 : k2;
    const std::size_t all_ones_if_right = -std::size_t{right_key < left_key};
    return first + (left ^ ((left ^ right) & all_ones_if_right));
  }

  entry* root_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace verge::detail

#pragma GCC visibility pop
