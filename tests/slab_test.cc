// SPDX-License-Identifier: Apache-2.0

// The slab: nodes, how a reused node is distinguished from its predecessor, memory, and misuse.
// Concurrency is in slab_threads_test.cc.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <new>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

#include <support/scale.h>
#include <support/slab_nodes.h>

namespace verge::test {
namespace {

using detail::page_source;
using detail::slab;
using detail::slab_id;
using detail::slab_pool;
using detail::slab_ref;
using detail::slab_stats;
using detail::system_pages;

// The system's pages, counted, and failing on request.
class counted_pages final : public page_source {
 public:
  void* map(std::size_t bytes, std::size_t alignment) noexcept override {
    if (attempts++ >= fail_from) return nullptr;
    void* p = system_pages().map(bytes, alignment);
    mapped[p] = bytes;
    return p;
  }
  void unmap(void* p, std::size_t bytes) noexcept override {
    EXPECT_EQ(mapped[p], bytes);
    mapped.erase(p);
    system_pages().unmap(p, bytes);
  }
  void discard(void* p, std::size_t bytes) noexcept override {
    discarded += bytes;
    system_pages().discard(p, bytes);
  }
  void prefer_huge_pages(void* p, std::size_t bytes, bool huge) noexcept override {
    wished_huge[p] = huge;
    system_pages().prefer_huge_pages(p, bytes, huge);
  }

  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const auto& [p, size] : mapped) sum += size;
    return sum;
  }

  std::size_t discarded = 0;
  int attempts = 0;
  int fail_from = std::numeric_limits<int>::max();
  std::map<void*, std::size_t> mapped;
  std::map<void*, bool> wished_huge;
};

TEST(slab, a_node_of_56_bytes_fills_a_cache_line_with_its_version) {
  slab<node> nodes;
  EXPECT_EQ(nodes.pool().stride(), 64U);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(address(nodes.allocate()) % 64, 8U);
}

TEST(slab, nodes_have_the_size_and_the_alignment_asked_for) {
  for (const std::size_t alignment : {1, 2, 4, 8, 16, 32, 64}) {
    for (const std::size_t size : {0, 1, 8, 24, 40, 56, 57, 64, 100, 120, 1000, 4096}) {
      slab_pool pool(size, alignment);
      std::vector<std::uintptr_t> at;
      for (int i = 0; i < 500; ++i) {
        void* p = pool.allocate();
        std::memset(p, 0xAA, size);
        at.push_back(address(p));
        EXPECT_EQ(address(p) % alignment, 0U);
        EXPECT_EQ(&slab_pool::owner(p), &pool);
      }
      std::sort(at.begin(), at.end());
      for (std::size_t i = 1; i < at.size(); ++i) {
        // The version of the next node is in between.
        EXPECT_GE(at[i] - at[i - 1], size + slab_pool::header_bytes);
      }
    }
  }
}

TEST(slab, unsupported_sizes_and_alignments_are_rejected) {
  EXPECT_THROW(slab_pool(4097), std::invalid_argument);
  EXPECT_THROW(slab_pool{std::numeric_limits<std::size_t>::max()}, std::invalid_argument);
  EXPECT_THROW(slab_pool(8, 0), std::invalid_argument);
  EXPECT_THROW(slab_pool(8, 24), std::invalid_argument);
  EXPECT_THROW(slab_pool(8, 128), std::invalid_argument);
}

TEST(slab, a_freed_node_is_recognised_by_its_version) {
  slab<node> nodes;
  node* n = nodes.allocate();
  const slab_ref<node> ref = nodes.ref(n);
  const slab_id id = nodes.id(n);
  EXPECT_TRUE(nodes.is_valid(ref));
  EXPECT_EQ(nodes.find(id), n);

  nodes.free(n);
  EXPECT_FALSE(nodes.is_valid(ref));
  EXPECT_EQ(nodes.find(id), nullptr);

  node* again = nodes.allocate();
  ASSERT_EQ(again, n) << "the node freed last is the one used first";
  EXPECT_FALSE(nodes.is_valid(ref));
  EXPECT_EQ(nodes.find(id), nullptr);
  EXPECT_TRUE(nodes.is_valid(nodes.ref(again)));
  EXPECT_EQ(nodes.find(nodes.id(again)), again);
}

TEST(slab, a_version_is_odd_in_use_and_even_when_free) {
  slab<node> nodes;
  node* n = nodes.allocate();
  EXPECT_TRUE(slab_pool::is_live(slab_pool::version(n)));
  nodes.free(n);
  EXPECT_FALSE(slab_pool::is_live(slab_pool::version(n)));
}

TEST(slab, a_reference_to_nothing_is_not_valid) {
  EXPECT_FALSE(slab<node>::is_valid({}));
  slab<node> nodes;
  EXPECT_EQ(nodes.find({}), nullptr);
  const slab_id none;
  EXPECT_EQ(nodes.id(nodes.allocate()).index, none.index) << "the first";
  EXPECT_EQ(nodes.find(none), nullptr);
}

TEST(slab, any_numbers_may_be_looked_up) {
  slab<node> nodes;
  node* n = nodes.allocate();
  const slab_id id = nodes.id(n);
  std::mt19937 random(1);
  const auto number = [&random] { return static_cast<std::uint32_t>(random()) >> (random() % 32); };
  for (int i = 0; i < 100'000; ++i) {
    const slab_id guess{number(), number()};
    ASSERT_EQ(nodes.find(guess), guess == id ? n : nullptr);
  }
  for (std::uint32_t index = 0; index < 200'000; ++index) {
    ASSERT_EQ(nodes.find({index, 1}), index == id.index ? n : nullptr) << index;
    ASSERT_EQ(nodes.find({index, 0}), nullptr) << index;
  }
}

/// There is memory behind each chunk.
class pages_with_more_behind final : public page_source {
 public:
  static constexpr std::size_t more = slab_pool::chunk_bytes;
  void* map(std::size_t bytes, std::size_t alignment) noexcept override {
    return system_pages().map(bytes + more, alignment);
  }
  void unmap(void* p, std::size_t bytes) noexcept override {
    system_pages().unmap(p, bytes + more);
  }
  void discard(void*, std::size_t) noexcept override {}
  void prefer_huge_pages(void*, std::size_t, bool) noexcept override {}
};

TEST(slab, the_last_place_of_a_chunk_is_looked_up_and_none_behind_it) {
  pages_with_more_behind pages;
  bool odd = false;
  bool even = false;
  for (std::size_t size = 1000; size < 1200; size += 16) {
    slab_pool pool(size, 8, nullptr, pages);
    const auto places = static_cast<std::uint32_t>(slab_pool_access::per_chunk(pool));
    (places % 2 != 0 ? odd : even) = true;
    std::map<std::uint32_t, void*> at;
    for (std::uint32_t i = 0; i < places; ++i) {
      void* const node = pool.allocate();
      at[slab_pool::index(node)] = node;
    }
    ASSERT_EQ(at.rbegin()->first, places - 1);
    for (std::uint32_t i = 0; i < places; ++i) ASSERT_EQ(pool.find({i, 1}), at[i]);
    for (const std::uint32_t behind : {places, places + 1}) {
      slab_pool_access::set_version(pool.at(behind), 1);  // as if a node in use were there
      EXPECT_EQ(pool.find({behind, 1}), nullptr);
    }
  }
  EXPECT_TRUE(odd && even);
}

TEST(slab, a_node_keeps_its_contents_from_one_life_to_the_next) {
  slab<node> nodes;
  const std::size_t all = slab_pool_access::per_chunk(nodes.pool());  // so that all are reused
  std::vector<node*> taken;
  for (std::size_t i = 0; i < all; ++i) {
    taken.push_back(nodes.allocate());
    EXPECT_EQ(taken.back()->word, 7U) << "constructed before it is first used";
    taken.back()->word = address(taken.back());
  }
  for (node* n : taken) nodes.free(n);
  for (node* n : taken) EXPECT_EQ(n->word, address(n)) << "a free node is not written to";
  for (std::size_t i = 0; i < all; ++i) {
    node* n = nodes.allocate();
    EXPECT_EQ(n->word, address(n)) << "nor is it constructed again";
  }
}

TEST(slab, an_index_leads_to_its_node) {
  slab<node> nodes;
  const std::size_t count = 2 * slab_pool_access::per_chunk(nodes.pool()) + 10;
  for (std::size_t i = 0; i < count; ++i) {
    node* n = nodes.allocate();
    ASSERT_EQ(nodes.pool().at(slab_pool::index(n)), n);
  }
}

TEST(slab, has_indices_for_far_more_than_a_hundred_million_nodes) {
  slab<node> nodes;
  EXPECT_GT(slab_pool_access::max_chunks * slab_pool_access::per_chunk(nodes.pool()),
            1'000'000'000U);
}

TEST(slab, never_hands_out_a_node_twice_under_random_use) {
  slab_pool pool(24);
  std::mt19937 random(42);
  std::map<void*, std::uint64_t> live;
  std::vector<void*> order;
  const int steps = scale(2'000'000, 200'000);
  std::size_t target = 0;
  for (int i = 0; i < steps; ++i) {
    if (i % 20'000 == 0) target = random() % 50'000;
    if (order.empty() || (order.size() < target ? random() % 4 != 0 : random() % 4 == 0)) {
      void* p = pool.allocate();
      const std::uint64_t stamp = random();
      ASSERT_TRUE(live.emplace(p, stamp).second) << "allocated twice";
      std::memcpy(p, &stamp, sizeof stamp);
      order.push_back(p);
    } else {
      const std::size_t which = random() % order.size();
      void* p = order[which];
      std::uint64_t stamp = 0;
      std::memcpy(&stamp, p, sizeof stamp);
      ASSERT_EQ(stamp, live[p]) << "another thread wrote to it";
      order[which] = order.back();
      order.pop_back();
      live.erase(p);
      pool.free(p);
    }
    if (i % 1000 == 0) {
      ASSERT_EQ(pool.stats().nodes_live, live.size());
    }
  }
}

TEST(slab, accounts_for_every_node_and_byte) {
  counted_pages pages;
  {
    slab<node> nodes(pages);
    EXPECT_EQ(nodes.stats().bytes_reserved, pages.bytes());
    EXPECT_EQ(nodes.stats().nodes_total, 0U);
    EXPECT_EQ(nodes.stats().nodes_free, 0U);

    const std::size_t per_chunk = slab_pool_access::per_chunk(nodes.pool());
    EXPECT_GT(per_chunk, 30'000U);
    std::vector<node*> taken;
    for (std::size_t i = 0; i < per_chunk + 1; ++i) taken.push_back(nodes.allocate());
    slab_stats s = nodes.stats();
    EXPECT_EQ(s.bytes_reserved, pages.bytes());
    EXPECT_EQ(s.nodes_total, 2 * per_chunk);
    EXPECT_EQ(s.nodes_live, per_chunk + 1);
    EXPECT_EQ(s.nodes_free, per_chunk - 1);

    for (node* n : taken) nodes.free(n);
    s = nodes.stats();
    EXPECT_EQ(s.bytes_reserved, pages.bytes()) << "nothing is unmapped during the pool's lifetime";
    EXPECT_EQ(s.nodes_live, 0U);
    EXPECT_EQ(s.nodes_free, 2 * per_chunk);

    for (std::size_t i = 0; i < 2 * per_chunk; ++i) nodes.allocate();
    EXPECT_EQ(nodes.stats().nodes_total, 2 * per_chunk) << "all that was freed is found again";
    EXPECT_EQ(nodes.stats().nodes_free, 0U);
  }
  EXPECT_TRUE(pages.mapped.empty()) << "all is released in the end";
}

std::size_t resident_pages(const void* memory, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(getpagesize());
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  EXPECT_EQ(mincore(const_cast<void*>(memory), bytes, pages.data()), 0);
  return static_cast<std::size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; }));
}

TEST(slab, a_pool_of_few_nodes_is_small) {
  counted_pages pages;
  slab<node> nodes(pages);
  for (int i = 0; i < 100; ++i) nodes.allocate();
  std::size_t resident = 0;
  for (const auto& [memory, bytes] : pages.mapped) resident += resident_pages(memory, bytes);
  EXPECT_GE(resident, 2U);
  EXPECT_LE(resident, 10U);
}

TEST(slab, wants_huge_pages_once_there_is_a_second_chunk) {
  counted_pages pages;
  slab<node> nodes(pages);
  nodes.allocate();
  ASSERT_EQ(pages.wished_huge.size(), 1U);
  EXPECT_FALSE(pages.wished_huge.begin()->second);
  const std::size_t per_chunk = slab_pool_access::per_chunk(nodes.pool());
  for (std::size_t i = 0; i < 2 * per_chunk; ++i) nodes.allocate();
  ASSERT_EQ(pages.wished_huge.size(), 3U);
  for (const auto& [memory, huge] : pages.wished_huge) EXPECT_TRUE(huge);
}

TEST(slab, out_of_memory_leaves_the_pool_unchanged) {
  constexpr std::size_t count = 5000;
  constexpr std::size_t big = 4000;  // few to a chunk: many allocations
  const int points = [] {
    counted_pages pages;
    slab_pool pool(big, 8, nullptr, pages);
    for (std::size_t i = 0; i < count; ++i) pool.allocate();
    return pages.attempts;
  }();
  ASSERT_GT(points, 8);

  for (int point = 0; point < points; ++point) {
    SCOPED_TRACE(point);
    counted_pages pages;
    pages.fail_from = point;
    if (point == 0) {
      EXPECT_THROW(slab_pool(big, 8, nullptr, pages), std::bad_alloc);
      EXPECT_TRUE(pages.mapped.empty());
      continue;
    }
    slab_pool pool(big, 8, nullptr, pages);
    std::set<void*> taken;
    EXPECT_THROW(
        for (std::size_t i = 0; i < count; ++i) {
          const slab_stats before = pool.stats();
          try {
            taken.insert(pool.allocate());
          } catch (...) {
            const slab_stats after = pool.stats();
            EXPECT_EQ(after.bytes_reserved, before.bytes_reserved);
            EXPECT_EQ(after.nodes_total, before.nodes_total);
            EXPECT_EQ(after.nodes_live, before.nodes_live);
            EXPECT_EQ(after.nodes_free, 0U);
            throw;
          }
        },
        std::bad_alloc);
    EXPECT_EQ(pool.stats().nodes_live, taken.size());
    EXPECT_EQ(pool.try_allocate(), nullptr);

    // Freed nodes can be allocated again without memory; and everything continues when there is
    // some.
    if (!taken.empty()) {
      void* p = *taken.begin();
      pool.free(p);
      EXPECT_EQ(pool.try_allocate(), p);
      EXPECT_EQ(pool.try_allocate(), nullptr);
    }
    pages.fail_from = std::numeric_limits<int>::max();
    while (taken.size() < count) ASSERT_TRUE(taken.insert(pool.allocate()).second);
  }
}

TEST(slab, a_node_that_has_used_up_its_versions_is_not_used_again) {
  slab<node> nodes;
  node* n = nodes.allocate();
  slab_pool_access::set_version(n, slab_pool_access::last_version - 1);
  const slab_ref<node> ref = nodes.ref(n);
  EXPECT_TRUE(nodes.is_valid(ref));
  nodes.free(n);
  EXPECT_FALSE(nodes.is_valid(ref));
  EXPECT_EQ(nodes.stats().nodes_used_up, 1U);
  EXPECT_EQ(nodes.stats().nodes_live, 0U);
  const std::size_t total = nodes.stats().nodes_total;
  EXPECT_EQ(nodes.stats().nodes_free, total - 1);
  for (std::size_t i = 0; i < total - 1; ++i) ASSERT_NE(nodes.allocate(), n);
  EXPECT_EQ(nodes.stats().nodes_total, total);
}

TEST(slab_death_test, a_node_freed_twice_ends_the_process) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  slab<node> nodes;
  node* n = nodes.allocate();
  nodes.free(n);
  EXPECT_DEATH(nodes.free(n),
               "slab_pool .*: free of node .* \\(index .*, version 2\\), which is free already");
}
TEST(slab, a_million_nodes_are_allocated_and_freed) {
  slab<node> nodes;
  const std::size_t count = scale(3'000'000, 200'000);
  std::vector<node*> taken;
  taken.reserve(count);
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < count; ++i) taken.push_back(nodes.allocate());
    EXPECT_EQ(nodes.stats().nodes_live, count);
    for (node* n : taken) nodes.free(n);
    taken.clear();
    EXPECT_EQ(nodes.stats().nodes_live, 0U);
  }
  EXPECT_LE(nodes.stats().bytes_reserved, count * 68 + 2 * slab_pool::chunk_bytes)
      << "64 bytes a node, 4 in the depot, and what the tables take";
}
}  // namespace
}  // namespace verge::test
