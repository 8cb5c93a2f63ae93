// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include <verge/detail/heap_memory.h>

#pragma GCC visibility push(default)

namespace verge::detail {

/// Nodes that are found by their numbers, stay where they are, and are used again: the memory of a
/// timer_queue. The first come in small blocks; from 2 MiB on they lie on huge pages, since to find
/// one of a million on 4 KiB pages would miss the TLB as well as the cache. A node is constructed
/// once, before it is first given out.
template <class Node>
class numbered_nodes {
 public:
  numbered_nodes() = default;
  numbered_nodes(const numbered_nodes&) = delete;
  numbered_nodes& operator=(const numbered_nodes&) = delete;
  ~numbered_nodes() {
    for (Node* b : blocks_) std::destroy_n(b, per_block);
    for (const region& r : regions_) heap_memory::release(r.memory, r.bytes);
  }

  /// How many there are, in use or not.
  [[nodiscard]] std::size_t size() const noexcept { return blocks_.size() * per_block; }
  [[nodiscard]] Node& operator[](std::uint32_t number) const noexcept {
    return blocks_[number / per_block][number % per_block];
  }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return blocks_.size() * block_bytes + free_.capacity() * sizeof(std::uint32_t);
  }

  /// The number of one that is free. Throws std::bad_alloc, and has changed nothing then.
  std::uint32_t take() {
    if (free_.empty()) add_block();
    const std::uint32_t number = free_.back();
    free_.pop_back();
    return number;
  }
  void give_back(std::uint32_t number) noexcept {
    free_.push_back(number);  // there is room for all
  }

 private:
  static constexpr std::uint32_t per_block = 256;
  static constexpr std::size_t block_bytes = per_block * sizeof(Node);
  static constexpr std::size_t blocks_per_region =
      std::max<std::size_t>(heap_memory::huge_page / block_bytes, 1);
  static_assert(alignof(Node) <= heap_memory::line);

  struct region {
    void* memory;
    std::size_t bytes;
  };

  /// Doubles, where there is too little: reserve() alone would move everything each time.
  template <class T>
  static void make_room(std::vector<T>& v, std::size_t n) {
    if (n > v.capacity()) v.reserve(std::max(n, 2 * v.capacity()));
  }

  void add_block() {
    make_room(free_, size() + per_block);
    make_room(blocks_, blocks_.size() + 1);
    if (room_ == 0) add_region();
    Node* const b = reinterpret_cast<Node*>(next_);
    std::uninitialized_value_construct_n(b, per_block);
    next_ += block_bytes;
    --room_;
    const auto first = static_cast<std::uint32_t>(size());
    blocks_.push_back(b);
    for (std::uint32_t i = per_block; i != 0; --i) free_.push_back(first + i - 1);
  }

  void add_region() {
    const bool large = blocks_.size() >= blocks_per_region;
    const std::size_t wanted = large ? std::max(heap_memory::huge_page, block_bytes) : block_bytes;
    const std::size_t bytes = heap_memory::round_up(wanted);
    make_room(regions_, regions_.size() + 1);
    void* const memory = heap_memory::allocate(bytes);
    regions_.push_back({memory, bytes});
    next_ = static_cast<std::byte*>(memory);
    room_ = bytes / block_bytes;
  }

  std::vector<Node*> blocks_;
  std::vector<region> regions_;
  std::vector<std::uint32_t> free_;
  std::byte* next_ = nullptr;  ///< where the next block goes
  std::size_t room_ = 0;       ///< for how many there is room
};

}  // namespace verge::detail

#pragma GCC visibility pop
