// SPDX-License-Identifier: Apache-2.0

// Memory that comes back: what a pool gives back, what it keeps, and that addresses stay valid.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include <support/scale.h>
#include <support/slab_nodes.h>

namespace verge::test {
namespace {

using detail::slab;
using detail::slab_id;
using detail::slab_pool;
using detail::slab_ref;

class slab_trim : public testing::Test {
 protected:
  std::size_t per_chunk() { return slab_pool_access::per_chunk(nodes_.pool()); }
  std::vector<node*> allocate(std::size_t count) {
    std::vector<node*> all(count);
    for (node*& n : all) n = nodes_.allocate();
    return all;
  }
  void free(const std::vector<node*>& all) {
    for (node* n : all) nodes_.free(n);
  }
  std::size_t held_chunks() {
    const auto s = nodes_.stats();
    return s.nodes_total / per_chunk() - (s.bytes_reserved - s.bytes_held) / slab_pool::chunk_bytes;
  }

  int grown_ = 0;
  slab<node> nodes_;
};

TEST_F(slab_trim, gives_back_what_was_free_since_the_last_call) {
  const auto all = allocate(8 * per_chunk());
  EXPECT_EQ(nodes_.pool().trim(), 0U);
  free(all);
  EXPECT_EQ(nodes_.stats().nodes_live, 0U);
  EXPECT_EQ(nodes_.pool().trim(), 0U) << "it was in use until just now";
  EXPECT_TRUE(nodes_.pool().can_trim());
  EXPECT_GE(nodes_.pool().trim(), 5U);
  EXPECT_LE(held_chunks(), 3U);
  EXPECT_EQ(nodes_.stats().nodes_live, 0U);
}

TEST_F(slab_trim, keeps_what_was_needed_since_the_last_call) {
  const auto all = allocate(8 * per_chunk());
  free(all);
  nodes_.pool().trim();
  const auto again = allocate(7 * per_chunk());
  free(again);
  EXPECT_LE(nodes_.pool().trim(), 1U) << "a program that comes and goes keeps its memory";
}

TEST_F(slab_trim, keeps_an_eighth_of_what_is_in_use) {
  const auto live = allocate(16 * per_chunk());
  free(allocate(8 * per_chunk()));
  nodes_.pool().trim();
  nodes_.pool().trim();
  EXPECT_GE(held_chunks(), 18U);
  EXPECT_LE(held_chunks(), 20U) << "no more than a quarter above what is in use";
  free(live);
}

/// What was given back before is not in use.
TEST_F(slab_trim, keeps_an_eighth_of_what_is_in_use_and_counts_nothing_that_was_given_back) {
  const auto live = allocate(8 * per_chunk());
  free(allocate(24 * per_chunk()));
  nodes_.pool().trim();
  nodes_.pool().trim();
  const std::size_t held = held_chunks();
  EXPECT_GE(held, 10U);
  free(allocate(10 * per_chunk()));
  nodes_.pool().trim();
  nodes_.pool().trim();
  EXPECT_EQ(held_chunks(), held);
  free(live);
}

TEST_F(slab_trim, leaves_addresses_valid_and_old_references_recognisable) {
  const auto all = allocate(8 * per_chunk());
  std::vector<slab_ref<node>> refs;
  std::vector<slab_id> ids;
  for (node* n : all) {
    n->word.store(address(n), std::memory_order_release);
    refs.push_back(slab<node>::ref(n));
    ids.push_back(slab<node>::id(n));
  }
  free(all);
  nodes_.pool().trim();
  ASSERT_GT(nodes_.pool().trim(), 0U);
  std::size_t blank = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_FALSE(slab<node>::is_valid(refs[i]));
    ASSERT_EQ(nodes_.find(ids[i]), nullptr);
    const std::uint64_t word = all[i]->word.load(std::memory_order_acquire);
    ASSERT_TRUE(word == 0 || word == address(all[i]));
    blank += word == 0 ? 1 : 0;
  }
  EXPECT_GT(blank, 4 * per_chunk()) << "the memory is not there any more";

  // The same addresses again, for lives that no old reference matches.
  auto again = allocate(8 * per_chunk());
  EXPECT_EQ(nodes_.stats().nodes_live, again.size());
  EXPECT_EQ(nodes_.stats().nodes_total, again.size()) << "no new memory";
  std::sort(again.begin(), again.end());
  auto before = all;
  std::sort(before.begin(), before.end());
  EXPECT_EQ(again, before);
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_FALSE(slab<node>::is_valid(refs[i]));
    ASSERT_EQ(nodes_.find(ids[i]), nullptr);
    const std::uint64_t word = all[i]->word.load(std::memory_order_acquire);
    ASSERT_TRUE(word == 7 || word == address(all[i])) << "constructed anew, or as it was";
  }
  free(again);
}

TEST_F(slab_trim, says_when_a_pool_has_grown_large) {
  nodes_.pool().on_growth([](void* n) noexcept { ++*static_cast<int*>(n); }, &grown_);
  for (int i = 1; i <= 3; ++i) {
    const auto few = allocate(2 * per_chunk());
    EXPECT_FALSE(nodes_.pool().can_trim());
    EXPECT_EQ(grown_, i - 1);
    const auto more = allocate(5 * per_chunk());
    EXPECT_EQ(grown_, i);
    EXPECT_TRUE(nodes_.pool().can_trim());
    free(few);
    free(more);
    while (nodes_.pool().can_trim()) nodes_.pool().trim();
  }
}

TEST_F(slab_trim, says_so_with_the_first_chunk_that_is_one_too_many_for_a_small_pool) {
  nodes_.pool().on_growth([](void* n) noexcept { ++*static_cast<int*>(n); }, &grown_);
  auto all = allocate(slab_pool_access::small * per_chunk());
  EXPECT_EQ(grown_, 0);
  all.push_back(nodes_.allocate());
  EXPECT_EQ(grown_, 1);
  free(all);
}

/// Indices of free nodes may lie in a chunk whose nodes are given back: those stay, and the nodes
/// that share a page with them.
TEST_F(slab_trim, gives_back_the_nodes_of_a_chunk_in_which_the_depot_has_indices) {
  constexpr std::size_t in_a_page = 4096 / 64;
  const auto all = allocate(8 * per_chunk());
  for (node* n : all) n->word.store(address(n), std::memory_order_release);
  free(all);
  nodes_.pool().trim();
  const std::size_t given = nodes_.pool().trim();
  ASSERT_GT(given, 0U);
  std::size_t blank = 0;
  for (node* n : all) blank += n->word.load(std::memory_order_acquire) == 0 ? 1 : 0;
  EXPECT_GE(blank, given * (per_chunk() - in_a_page));
}

TEST_F(slab_trim, begins_the_lives_of_a_chunk_behind_the_last_of_all_its_nodes) {
  constexpr std::uint32_t lives = 1'000;
  auto all = allocate(8 * per_chunk());
  // One in each chunk is older than the others, and is neither its first nor its last.
  for (std::size_t i = per_chunk() / 2; i < all.size(); i += per_chunk()) {
    slab_pool_access::set_version(all[i], 2 * lives + 1);
  }
  const std::size_t chunks = held_chunks();
  free(all);
  nodes_.pool().trim();
  const std::size_t given = nodes_.pool().trim();
  ASSERT_GT(given, 0U);
  EXPECT_EQ(held_chunks(), chunks - given);
  all = allocate(8 * per_chunk());
  std::size_t behind = 0;
  for (const node* n : all) behind += slab_pool::version(n) > 2 * lives ? 1 : 0;
  EXPECT_GE(behind, given * per_chunk());
  free(all);
}

/// The system's pages, and how many chunks were given back as a whole.
class counted_pages final : public detail::page_source {
 public:
  void* map(std::size_t bytes, std::size_t alignment) noexcept override {
    return system_.map(bytes, alignment);
  }
  void unmap(void* memory, std::size_t bytes) noexcept override { system_.unmap(memory, bytes); }
  void discard(void* memory, std::size_t bytes) noexcept override {
    if (bytes == slab_pool::chunk_bytes) ++whole;
    system_.discard(memory, bytes);
  }
  void prefer_huge_pages(void* /*memory*/, std::size_t /*bytes*/, bool /*huge*/) noexcept override {
  }

  std::size_t whole = 0;

 private:
  detail::page_source& system_ = detail::system_pages();
};

/// What is left is in the depot, whose indices do not reach into the chunks that are given back.
TEST(a_chunk, is_given_back_as_a_whole_unless_the_depot_has_indices_in_it) {
  counted_pages pages;
  slab_pool pool(56, slab_pool::header_bytes, nullptr, pages);
  std::vector<void*> all(8 * slab_pool_access::per_chunk(pool));
  for (void*& n : all) n = pool.allocate();
  for (void* n : all) pool.free(n);
  pool.trim();
  const std::size_t given = pool.trim();
  EXPECT_GT(given, 2U);
  EXPECT_GE(pages.whole, given - 2) << "the depot begins in the first ones";
}

TEST_F(slab_trim, gives_back_around_nodes_that_stay) {
  auto all = allocate(8 * per_chunk());
  std::map<node*, std::uint64_t> stay;
  for (std::size_t i = 0; i < all.size(); i += 3 * per_chunk()) {
    all[i]->rest[0] = i + 1;
    stay[all[i]] = i + 1;
  }
  for (node* n : all) {
    if (!stay.contains(n)) nodes_.free(n);
  }
  nodes_.pool().trim();
  EXPECT_GE(nodes_.pool().trim(), 2U);
  EXPECT_EQ(nodes_.stats().nodes_live, stay.size());
  for (const auto& [n, stamp] : stay) EXPECT_EQ(n->rest[0], stamp);
  const auto more = allocate(6 * per_chunk());
  for (node* n : more) ASSERT_FALSE(stay.contains(n));
  EXPECT_EQ(nodes_.stats().nodes_live, stay.size() + more.size());
  for (const auto& [n, stamp] : stay) EXPECT_EQ(n->rest[0], stamp);
}

/// Waves of allocation in any order, with a trim now and then, against a map.
TEST_F(slab_trim, accounts_for_every_node_at_any_time) {
  std::mt19937_64 random(5);
  std::vector<node*> live;
  const int waves = scale(40, 12);
  std::size_t given_back = 0;
  for (int wave = 0; wave < waves; ++wave) {
    const std::size_t target = wave % 4 == 3 ? 10 : random() % (6 * per_chunk());
    while (live.size() < target) {
      node* const n = nodes_.allocate();
      n->rest[1] = address(n);
      live.push_back(n);
    }
    std::shuffle(live.begin(), live.end(), random);
    if (wave % 4 == 3) std::sort(live.begin(), live.end());  // so that whole chunks become free
    while (live.size() > target) {
      ASSERT_EQ(live.back()->rest[1], address(live.back()));
      nodes_.free(live.back());
      live.pop_back();
    }
    given_back += nodes_.pool().trim();
    if (wave % 4 == 3) given_back += nodes_.pool().trim();
    ASSERT_EQ(nodes_.stats().nodes_live, live.size());
    for (const node* n : live) ASSERT_EQ(n->rest[1], address(n));
  }
  EXPECT_GT(given_back, 0U);
}

/// Threads allocate and free in waves while another trims all the time: no node has two users, and
/// none is given back under its user.
TEST_F(slab_trim, takes_nothing_from_threads_that_allocate_and_free_meanwhile) {
  std::atomic<bool> done{false};
  std::atomic<std::size_t> given_back{0};
  std::thread trimmer([&] {
    while (!done) given_back += nodes_.pool().trim();
  });
  const std::size_t size = scale<std::size_t>(4, 2) * per_chunk();
  std::vector<std::thread> threads;
  for (unsigned me = 1; me <= 3; ++me) {
    threads.emplace_back([&, me] {
      std::minstd_rand random(me);
      for (int wave = 0; wave < scale(15, 4); ++wave) {
        std::vector<node*> mine(size / (1 + random() % 3));
        for (node*& n : mine) {
          n = nodes_.allocate();
          n->rest[2] = address(n) + me;
        }
        for (node* n : mine) {
          ASSERT_EQ(n->rest[2], address(n) + me);
          n->rest[2] = 0;
          nodes_.free(n);
        }
      }
    });
  }
  for (auto& t : threads) t.join();
  for (int i = 0; i < 1000 && given_back == 0; ++i) std::this_thread::yield();
  done = true;
  trimmer.join();
  EXPECT_EQ(nodes_.stats().nodes_live, 0U);
}

}  // namespace
}  // namespace verge::test
