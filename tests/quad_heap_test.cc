// SPDX-License-Identifier: Apache-2.0

// The 4-ary heap: its ends, its layout, its change notifications, filter and verify. The comparison
// with a model is in quad_heap_walk_test.cc, memory in quad_heap_memory_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <support/heap_nodes.h>
#include <support/scale.h>

namespace verge::test {
namespace {

using detail::filter_verdict;
using detail::quad_heap;

/// A suspect() for filter.
constexpr auto everybody = [](const auto&) { return true; };

TEST(quad_heap, a_new_heap_is_empty_and_holds_no_memory) {
  plain_heap heap;
  EXPECT_TRUE(heap.empty());
  EXPECT_EQ(heap.size(), 0U);
  EXPECT_EQ(heap.capacity(), 0U);
  EXPECT_EQ(heap.bytes(), 0U);
  EXPECT_TRUE(heap.verify());
  heap.rebuild();
  heap.clear();
  EXPECT_FALSE(heap.shrink());
  EXPECT_EQ(heap.filter(everybody, [](auto&) { return filter_verdict::drop; }), 0U);
}

TEST(quad_heap, never_comes_out_last_and_the_earliest_time_first) {
  plain_heap heap;
  for (const std::int64_t when : {latest, std::int64_t{0}, earliest, latest, earliest}) {
    heap.push(when, nullptr);
  }
  std::vector<std::int64_t> order;
  for (; !heap.empty(); heap.pop()) order.push_back(heap.front().when);
  EXPECT_EQ(order, (std::vector<std::int64_t>{earliest, earliest, 0, latest, latest}));
}

TEST(quad_heap, all_keys_equal_lose_no_entry) {
  std::vector<node> nodes(1000);
  tracked_heap heap;
  for (node& n : nodes) heap.push(42, &n);
  std::set<node*> seen;
  for (; !heap.empty(); heap.pop()) seen.insert(heap.front().node);
  EXPECT_EQ(seen.size(), nodes.size());
}

TEST(quad_heap, four_children_share_one_cache_line_however_large_the_array_is) {
  plain_heap heap;
  for (std::size_t size = 0; size < 300'000; ++size) {
    heap.push(0, nullptr);
    if ((size & (size - 1)) != 0) continue;
    for (std::size_t first = 1; first < heap.size(); first += 4) {
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(&heap[first]) % 64, 0U) << "child " << first;
    }
  }
}

TEST(quad_heap, verify_finds_an_entry_that_is_earlier_than_its_parent) {
  plain_heap heap;
  for (std::int64_t when = 0; when < 100; ++when) heap.push(when, nullptr);
  ASSERT_TRUE(heap.verify());
  ASSERT_EQ(heap.describe_violation(), "");
  const_cast<plain_heap::entry&>(heap[77]).when = 3;  // its parent is 19
  EXPECT_FALSE(heap.verify());
  EXPECT_EQ(heap.first_violation(), 77U);
  EXPECT_EQ(heap.describe_violation(),
            "entry 77 of 100 (when 3) is earlier than its parent 19 (when 19)");
  heap.rebuild();
  EXPECT_TRUE(heap.verify());
}

TEST(quad_heap, verify_finds_a_node_that_does_not_know_its_place) {
  std::vector<node> nodes(100);
  tracked_heap heap;
  for (std::size_t i = 0; i < nodes.size(); ++i) heap.push(static_cast<std::int64_t>(i), &nodes[i]);
  ASSERT_TRUE(heap.verify());
  nodes[50].index = 51;
  EXPECT_EQ(heap.first_violation(), 50U);
  EXPECT_EQ(heap.describe_violation(), "entry 50 of 100 (when 50) has a node whose index is 51");
}

/// A heap in which the last entry belongs above entry 5:
///   0:0  1:100  2:1  3:2  4:3   5..8: 101.. under 1   9..12: 4.. under 2
template <class Heap>
void build_lopsided(Heap& heap, std::vector<node>& nodes) {
  const std::array<std::int64_t, 13> keys = {0, 100, 1, 2, 3, 101, 102, 103, 104, 4, 5, 6, 7};
  nodes.resize(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) heap.push(keys[i], &nodes[i]);
  for (std::size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(heap[i].when, keys[i]);
}

TEST(quad_heap, removal_tells_the_smallest_index_that_changed) {
  tracked_heap heap;
  std::vector<node> nodes;
  build_lopsided(heap, nodes);
  EXPECT_EQ(heap.remove(5), 1U) << "7 came from the end, and rose above 100";
  EXPECT_EQ(heap[1].when, 7);
  EXPECT_EQ(heap[5].when, 100);
  EXPECT_EQ(heap.remove(11), 11U) << "the last leaves no gap";
  EXPECT_EQ(heap.remove(2), 2U) << "the gap filled from below";
  EXPECT_TRUE(heap.verify()) << heap.describe_violation();
}

TEST(quad_heap, update_tells_the_smallest_index_that_changed) {
  tracked_heap heap;
  std::vector<node> nodes;
  build_lopsided(heap, nodes);
  EXPECT_EQ(heap.update(8, 50), 1U);
  EXPECT_EQ(heap.update(8, 100), 8U) << "the same key changes nothing";
  EXPECT_EQ(heap.update(12, -1), 0U);
  EXPECT_EQ(heap.update(0, latest), 0U);
  EXPECT_TRUE(heap.verify()) << heap.describe_violation();
}

/// Visits all entries and removes those that are marked. Returns how many marked ones are left.
template <class Next>
std::size_t scan_and_remove(tracked_heap& heap, Next next) {
  for (std::size_t i = 0; i < heap.size();) {
    i = heap[i].node->marked ? next(i, heap.remove(i)) : i + 1;
  }
  return static_cast<std::size_t>(
      std::count_if(heap.begin(), heap.end(), [](const auto& e) { return e.node->marked; }));
}

// Go #47762: the scan continued behind the gap and never saw the entry that was moved from the end.
TEST(quad_heap, a_scan_that_restarts_at_the_changed_index_misses_no_entry) {
  std::mt19937_64 random(47762);
  const auto restart = [](std::size_t, std::size_t changed) { return changed; };
  const auto carry_on = [](std::size_t i, std::size_t) { return i; };
  std::size_t missed_by_carrying_on = 0;
  for (int round = 0; round < scale(2000, 200); ++round) {
    std::vector<node> nodes(random() % 200);
    for (node& n : nodes) {
      n.when = static_cast<std::int64_t>(random() % 1000);
      n.marked = random() % 3 == 0;
    }
    tracked_heap heap;
    for (node& n : nodes) heap.push(n.when, &n);
    ASSERT_EQ(scan_and_remove(heap, restart), 0U);
    ASSERT_TRUE(heap.verify()) << heap.describe_violation();
    tracked_heap other;
    for (node& n : nodes) other.push(n.when, &n);
    missed_by_carrying_on += scan_and_remove(other, carry_on);
  }
  EXPECT_GT(missed_by_carrying_on, 0U) << "the heaps were too simple to show the difference";
}

struct counting_index {
  static inline std::size_t told = 0;
  static void set(node&, std::size_t) noexcept { ++told; }
};

TEST(quad_heap, filter_takes_linear_time) {
  const auto size = scale<std::size_t>(1'000'000, 20'000);
  node n;
  quad_heap<node, counting_index> heap;
  for (std::size_t i = 0; i < size; ++i) heap.push(0, &n);
  std::int64_t when = 0;
  counting_index::told = 0;
  // The worst case: the order reversed, so that every entry sinks to the bottom. They are visited
  // from the last to the first.
  heap.filter(everybody, [&](auto& e) {
    e.when = ++when;
    return filter_verdict::keep;
  });
  EXPECT_TRUE(heap.verify());
  EXPECT_EQ(heap.front().when, 1);
  // Each of the n/4 parents, and n/3 for the heights they sink by.
  EXPECT_GE(counting_index::told, size / 4);
  EXPECT_LE(counting_index::told, size * 3 / 5 + 64);
}

TEST(quad_heap, filter_shows_each_entry_once_and_keeps_what_it_is_told_to) {
  std::vector<node> nodes(10'000);
  tracked_heap heap;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    heap.push(static_cast<std::int64_t>(i * 7919 % 10'007), &nodes[i]);
  }
  std::set<node*> seen;
  std::size_t times = 0;
  const auto suspect = [&](const auto& e) {
    seen.insert(e.node);
    ++times;
    return e.when % 3 != 2;
  };
  const std::size_t dropped = heap.filter(suspect, [&](auto& e) {
    EXPECT_NE(e.when % 3, 2);
    if (e.when % 3 == 0) return filter_verdict::drop;
    e.when = -e.when;
    return filter_verdict::keep;
  });
  EXPECT_EQ(seen.size(), nodes.size());
  EXPECT_EQ(times, nodes.size());
  EXPECT_EQ(heap.size(), nodes.size() - dropped);
  EXPECT_TRUE(heap.verify()) << heap.describe_violation();
  for (const auto& e : heap) {
    ASSERT_NE(e.when % 3, 0);
    ASSERT_NE(e.when % 3, 1);
  }
}

TEST(quad_heap, a_heap_can_be_moved_and_leaves_an_empty_one) {
  node n;
  tracked_heap heap;
  heap.push(5, &n);
  tracked_heap other(std::move(heap));
  // NOLINTBEGIN(bugprone-use-after-move,clang-analyzer-cplusplus.Move): promised to be empty
  EXPECT_TRUE(heap.empty());
  EXPECT_EQ(heap.bytes(), 0U);
  heap.push(6, &n);
  // NOLINTEND(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
  EXPECT_EQ(other.front().node, &n);
  heap = std::move(other);
  EXPECT_EQ(heap.size(), 1U);
  EXPECT_EQ(heap.front().when, 5);
}

}  // namespace
}  // namespace verge::test
