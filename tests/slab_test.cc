#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory/slab.h>
#include <support/scale.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace verge::detail {

// What only tests may do to a pool.
struct slab_pool_access {
  static constexpr std::uint32_t last_version = slab_pool::last_version;
  static constexpr std::size_t max_chunks = slab_pool::max_chunks;
  static constexpr std::size_t cache_size = slab_pool::cache_size;
  static void set_version(void* node, std::uint32_t version) {
    slab_pool::header_of(node).version.store(version);
  }
  static std::size_t per_chunk(const slab_pool& pool) { return pool.per_chunk_; }
};

}  // namespace verge::detail

namespace {

using verge::detail::no_thread_slot;
using verge::detail::page_source;
using verge::detail::slab;
using verge::detail::slab_id;
using verge::detail::slab_pool;
using verge::detail::slab_pool_access;
using verge::detail::slab_ref;
using verge::detail::slab_stats;
using verge::detail::system_pages;
using verge::detail::take_thread_slot;
using verge::detail::thread_slot_count;
using verge::test::scale;

// A timer's node might look like this: with its version a cache line.
struct node {
  std::atomic<std::uint64_t> word{7};
  std::uint64_t rest[6] = {};
};
static_assert(sizeof(node) == 56);

std::uintptr_t address(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

// The system's pages, counted, and refused when told to.
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
  void prefer_huge_pages(void* p, std::size_t bytes, bool huge) noexcept override {
    wished_huge[p] = huge;
    system_pages().prefer_huge_pages(p, bytes, huge);
  }

  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const auto& [p, size] : mapped) sum += size;
    return sum;
  }

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
        // The version of the next node lies between.
        EXPECT_GE(at[i] - at[i - 1], size + slab_pool::header_bytes);
      }
    }
  }
}

TEST(slab, sizes_and_alignments_that_cannot_be_had_are_refused) {
  EXPECT_THROW(slab_pool(4097), std::invalid_argument);
  EXPECT_THROW(slab_pool(std::numeric_limits<std::size_t>::max()), std::invalid_argument);
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

TEST(slab, a_node_keeps_its_contents_from_one_life_to_the_next) {
  slab<node> nodes;
  const std::size_t all = slab_pool_access::per_chunk(nodes.pool());  // so that all are used again
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
      ASSERT_TRUE(live.emplace(p, stamp).second) << "handed out twice";
      std::memcpy(p, &stamp, sizeof stamp);
      order.push_back(p);
    } else {
      const std::size_t which = random() % order.size();
      void* p = order[which];
      std::uint64_t stamp = 0;
      std::memcpy(&stamp, p, sizeof stamp);
      ASSERT_EQ(stamp, live[p]) << "somebody else wrote to it";
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
    EXPECT_EQ(s.bytes_reserved, pages.bytes()) << "nothing is given back while the pool lives";
    EXPECT_EQ(s.nodes_live, 0U);
    EXPECT_EQ(s.nodes_free, 2 * per_chunk);

    for (std::size_t i = 0; i < 2 * per_chunk; ++i) nodes.allocate();
    EXPECT_EQ(nodes.stats().nodes_total, 2 * per_chunk) << "all that was freed is found again";
    EXPECT_EQ(nodes.stats().nodes_free, 0U);
  }
  EXPECT_TRUE(pages.mapped.empty()) << "all is given back in the end";
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

TEST(slab, out_of_memory_leaves_the_pool_as_it_was) {
  constexpr std::size_t count = 5000;
  constexpr std::size_t big = 4000;  // few to a chunk: many points at which memory is asked for
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

    // What is freed can be had again, without memory; and all goes on when there is some.
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

TEST(slab, a_node_that_has_used_up_its_versions_is_retired) {
  slab<node> nodes;
  node* n = nodes.allocate();
  slab_pool_access::set_version(n, slab_pool_access::last_version - 1);
  const slab_ref<node> ref = nodes.ref(n);
  EXPECT_TRUE(nodes.is_valid(ref));
  nodes.free(n);
  EXPECT_FALSE(nodes.is_valid(ref));
  EXPECT_EQ(nodes.stats().nodes_retired, 1U);
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

// ---- Threads ------------------------------------------------------------------------------------

void in_threads(int count, const auto& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (auto& t : threads) t.join();
}

TEST(slab, threads_share_a_pool_without_sharing_a_node) {
  slab<node> nodes;
  constexpr int threads = 4;
  const int rounds = scale(300'000, 30'000);
  // Where threads leave nodes for one another: what is freed was often allocated elsewhere.
  std::vector<std::atomic<node*>> exchange(512);
  std::atomic<std::int64_t> live{0};
  in_threads(threads, [&](int me) {
    std::minstd_rand random(static_cast<unsigned>(me) + 1);
    for (int i = 0; i < rounds; ++i) {
      node* mine = nodes.allocate();
      mine->rest[0] = address(mine);
      mine->rest[5] = static_cast<std::uint64_t>(me);
      ++live;
      node* other = exchange[random() % exchange.size()].exchange(mine);
      if (other != nullptr) {
        ASSERT_EQ(other->rest[0], address(other));
        other->rest[0] = 0;
        nodes.free(other);
        --live;
      }
    }
  });
  EXPECT_EQ(nodes.stats().nodes_live, static_cast<std::size_t>(live.load()));
  for (auto& place : exchange) {
    if (node* n = place.load()) nodes.free(n);
  }
  EXPECT_EQ(nodes.stats().nodes_live, 0U);
}

TEST(slab, a_thread_that_only_frees_feeds_one_that_only_allocates) {
  slab<node> nodes;
  const int count = scale(2'000'000, 200'000);
  constexpr std::size_t room = 1024;
  std::vector<std::atomic<node*>> ring(room);
  in_threads(2, [&](int me) {
    for (int i = 0; i < count; ++i) {
      auto& place = ring[static_cast<std::size_t>(i) % room];
      if (me == 0) {
        while (place.load(std::memory_order_acquire) != nullptr) std::this_thread::yield();
        place.store(nodes.allocate(), std::memory_order_release);
      } else {
        node* n = nullptr;
        while ((n = place.load(std::memory_order_acquire)) == nullptr) std::this_thread::yield();
        place.store(nullptr, std::memory_order_release);
        nodes.free(n);
      }
    }
  });
  const slab_stats s = nodes.stats();
  EXPECT_EQ(s.nodes_live, 0U);
  EXPECT_EQ(s.bytes_reserved, slab<node>().stats().bytes_reserved + slab_pool::chunk_bytes)
      << "no more than one chunk";
}

// Readers follow references whose nodes are freed and reused under their hands, as the header says:
// the field with acquire, then the version. They go on until they have met enough of both kinds.
TEST(slab, a_stale_reader_never_takes_one_life_for_another) {
  struct stamped {
    std::atomic<std::uint64_t> version_of_this_life{0};
  };
  slab<stamped> nodes;
  constexpr std::size_t places = 8;
  std::vector<std::atomic<std::uint64_t>> ids(places);  // index and version in one word
  std::atomic<int> readers{2};
  const int wanted = scale(500'000, 20'000);

  const auto write = [&](std::minstd_rand random) {
    std::vector<stamped*> mine(places);
    while (readers != 0) {
      stamped*& n = mine[random() % places];
      if (n != nullptr) nodes.free(n);
      n = nodes.allocate();
      const slab_id id = nodes.id(n);
      n->version_of_this_life.store(id.version, std::memory_order_release);
      ids[random() % places].store(std::uint64_t{id.index} << 32 | id.version,
                                   std::memory_order_release);
    }
  };
  const auto read = [&](std::minstd_rand random) {
    int valid = 0;
    int stale = 0;
    while (valid < wanted || stale < wanted) {
      const std::uint64_t packed = ids[random() % places].load(std::memory_order_acquire);
      const auto version = static_cast<std::uint32_t>(packed);
      stamped* n = nodes.find({static_cast<std::uint32_t>(packed >> 32), version});
      const std::uint64_t field =
          n == nullptr ? 0 : n->version_of_this_life.load(std::memory_order_acquire);
      if (nodes.is_valid({n, version})) {
        EXPECT_EQ(field, version);
        ++valid;
      } else {
        ++stale;
      }
    }
    --readers;
  };
  in_threads(4, [&](int me) {
    const std::minstd_rand random(static_cast<unsigned>(me) + 1);
    me < 2 ? write(random) : read(random);
  });
}

TEST(slab, threads_that_end_leave_nothing_behind) {
  slab<node> nodes;
  for (int i = 0; i < 500; ++i) {
    in_threads(2, [&](int) {
      std::vector<node*> taken;
      for (int n = 0; n < 200; ++n) taken.push_back(nodes.allocate());
      for (node* n : taken) nodes.free(n);
    });
  }
  const slab_stats s = nodes.stats();
  EXPECT_EQ(s.nodes_live, 0U);
  // Were each thread's cache lost, it would be three chunks by now.
  EXPECT_EQ(s.nodes_total, slab_pool_access::per_chunk(nodes.pool()));
}

TEST(slab, pools_come_and_go_while_threads_stay) {
  std::unique_ptr<slab<node>> nodes;
  constexpr int threads = 3;
  std::barrier all(threads);
  const std::uint64_t rounds = scale(200, 50);
  in_threads(threads, [&](int me) {
    for (std::uint64_t i = 0; i < rounds; ++i) {
      if (me == 0) nodes = std::make_unique<slab<node>>();
      all.arrive_and_wait();
      std::vector<node*> taken;
      for (int n = 0; n < 300; ++n) {
        taken.push_back(nodes->allocate());
        const std::uint64_t stamp = taken.back()->word.exchange(1000 + i);
        EXPECT_TRUE(stamp == 7 || stamp == 1000 + i) << "a node of a pool that is gone: " << stamp;
        EXPECT_EQ(&slab_pool::owner(taken.back()), &nodes->pool());
      }
      for (int n = me; n < 300; ++n) nodes->free(taken[static_cast<std::size_t>(n)]);
      all.arrive_and_wait();
      if (me == 0) {
        EXPECT_EQ(nodes->stats().nodes_live, 3U);  // 0 + 1 + 2 were not freed
        nodes.reset();
      }
    }
  });
}

TEST(slab, serves_destructors_that_run_as_a_thread_ends) {
  static slab<node> nodes;
  struct holder {
    node* held = nullptr;
    ~holder() {
      EXPECT_EQ(take_thread_slot(), no_thread_slot) << "taken now, it would never be given back";
      nodes.free(held);
      nodes.free(nodes.allocate());
    }
  };
  const std::size_t before = nodes.stats().nodes_live;
  in_threads(2, [](int) {
    static thread_local holder h;  // before the slot, so it is destroyed after
    h.held = nodes.allocate();
  });
  EXPECT_EQ(nodes.stats().nodes_live, before);
}

TEST(slab, serves_more_threads_than_there_are_slots) {
  slab<node> nodes;
  constexpr int threads = static_cast<int>(thread_slot_count) + 20;
  std::barrier all(threads);
  std::atomic<int> without{0};
  std::mutex mutex;
  std::set<node*> seen;
  in_threads(threads, [&](int) {
    node* n = nodes.allocate();
    without += take_thread_slot() >= thread_slot_count;
    {
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(seen.insert(n).second);
    }
    all.arrive_and_wait();
    nodes.free(n);
  });
  EXPECT_GE(without, 20);
  EXPECT_EQ(nodes.stats().nodes_live, 0U);
}

TEST(slab, a_million_nodes_come_and_go) {
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

TEST(thread_slot, differs_between_threads_and_is_used_again) {
  std::barrier both(2);
  std::uint32_t slots[2] = {};
  in_threads(2, [&](int me) {
    slots[me] = take_thread_slot();
    EXPECT_EQ(take_thread_slot(), slots[me]);
    both.arrive_and_wait();
  });
  EXPECT_NE(slots[0], slots[1]);
  std::uint32_t next = 0;
  std::thread([&next] { next = take_thread_slot(); }).join();
  EXPECT_EQ(next, std::min(slots[0], slots[1]));
}

}  // namespace
