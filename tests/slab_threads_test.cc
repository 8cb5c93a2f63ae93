// SPDX-License-Identifier: Apache-2.0

// The slab with many threads: allocation, freeing, threads that end meanwhile, and the slots that
// identify threads.
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include <support/scale.h>
#include <support/slab_nodes.h>

namespace verge::test {
namespace {

using detail::no_thread_slot;
using detail::slab;
using detail::slab_id;
using detail::slab_pool;
using detail::slab_stats;
using detail::take_thread_slot;
using detail::thread_slot_count;

void in_threads(int count, const auto& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (auto& t : threads) t.join();
}

TEST(slab, threads_share_a_pool_without_sharing_a_node) {
  slab<node> nodes;
  constexpr int threads = 4;
  const int rounds = scale(300'000, 30'000);
  // Where threads leave nodes for each other: a node is often freed by another thread than the one
  // that allocated it.
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

// Readers follow references whose nodes are concurrently freed and reused, as the header says: the
// field with acquire, then the version. They continue until they have seen enough of both kinds.
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
  // If each thread's cache were lost, there would be three chunks by now.
  EXPECT_EQ(s.nodes_total, slab_pool_access::per_chunk(nodes.pool()));
}

TEST(slab, pools_are_created_and_destroyed_while_threads_run) {
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
        EXPECT_TRUE(stamp == 7 || stamp == 1000 + i) << "a node of a destroyed pool: " << stamp;
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
      EXPECT_NE(take_thread_slot(), no_thread_slot) << "it has not been returned yet";
      nodes.free(held);
      nodes.free(nodes.allocate());
    }
  };
  // A key that is created after that of the slots, so that its destructor runs after theirs.
  std::thread([] { take_thread_slot(); }).join();
  pthread_key_t late{};
  ASSERT_EQ(pthread_key_create(&late,
                               [](void* held) {
                                 EXPECT_EQ(take_thread_slot(), no_thread_slot)
                                     << "taken now, it would never be returned";
                                 nodes.free(static_cast<node*>(held));
                                 nodes.free(nodes.allocate());
                               }),
            0);
  const std::size_t before = nodes.stats().nodes_live;
  in_threads(2, [&](int) {
    static thread_local holder h;
    h.held = nodes.allocate();
    pthread_setspecific(late, nodes.allocate());
  });
  EXPECT_EQ(nodes.stats().nodes_live, before);
  pthread_key_delete(late);
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
TEST(thread_slot, differs_between_threads_and_is_reused) {
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
}  // namespace verge::test
