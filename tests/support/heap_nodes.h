// SPDX-License-Identifier: Apache-2.0
// Nodes for tests of the 4-ary heap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <queue/quad_heap.h>

namespace verge::test {

inline constexpr std::int64_t earliest = std::numeric_limits<std::int64_t>::min();
inline constexpr std::int64_t latest = std::numeric_limits<std::int64_t>::max();

struct node {
  static constexpr std::size_t nowhere = ~std::size_t{0};
  std::size_t index = nowhere;
  std::int64_t when = 0;
  bool marked = false;
};

struct index_in_node {
  static void set(node& n, std::size_t i) noexcept { n.index = i; }
  static std::size_t get(const node& n) noexcept { return n.index; }
};

using plain_heap = detail::quad_heap<node>;
using tracked_heap = detail::quad_heap<node, index_in_node>;

template <class Heap>
std::vector<std::pair<std::int64_t, node*>> contents(const Heap& heap) {
  std::vector<std::pair<std::int64_t, node*>> all;
  for (const auto& e : heap) all.emplace_back(e.when, e.node);
  return all;
}

}  // namespace verge::test
