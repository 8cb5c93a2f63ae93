// SPDX-License-Identifier: Apache-2.0

// Memory that is ready ahead of need: when a pool asks for it, that it is used and no allocation
// goes to the system then, and that it is given back when it is not needed after all.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <new>
#include <set>
#include <thread>
#include <vector>

#include <verge/runtime.h>
#include <verge/time.h>

#include <engine/clockwork.h>
#include <support/hybrid_access.h>
#include <support/patience.h>
#include <support/scale.h>
#include <support/slab_nodes.h>

namespace verge::test {
namespace {

using namespace std::chrono_literals;
using detail::page_source;
using detail::slab_pool;

/// The system's pages, with a look at each request.
class watched_pages final : public page_source {
 public:
  void* map(std::size_t bytes, std::size_t alignment) noexcept override {
    if (during_map) during_map();
    const std::lock_guard held(lock_);
    if (refuses) return nullptr;
    void* const p = system_.map(bytes, alignment);
    maps += bytes == slab_pool::chunk_bytes ? 1 : 0;
    if (bytes == slab_pool::chunk_bytes) mapped.insert(p);
    return p;
  }
  void unmap(void* p, std::size_t bytes) noexcept override {
    const std::lock_guard held(lock_);
    mapped.erase(p);
    system_.unmap(p, bytes);
  }
  void discard(void* p, std::size_t bytes) noexcept override { system_.discard(p, bytes); }
  void prefer_huge_pages(void* p, std::size_t bytes, bool huge) noexcept override {
    system_.prefer_huge_pages(p, bytes, huge);
  }

  std::function<void()> during_map;
  bool refuses = false;
  int maps = 0;  ///< of chunks
  std::set<void*> mapped;

 private:
  page_source& system_ = detail::system_pages();
  std::mutex lock_;
};

class slab_ahead : public testing::Test {
 protected:
  static constexpr std::size_t large = slab_pool_access::large;

  slab_ahead() {
    pool_.on_growth([](void* n) noexcept { ++*static_cast<std::atomic<int>*>(n); }, &calls_);
  }

  std::size_t per_chunk() { return slab_pool_access::per_chunk(pool_); }
  void allocate(std::size_t count) {
    for (; count != 0; --count) all_.push_back(pool_.allocate());
  }
  void free_all() {
    for (void* n : all_) pool_.free(n);
    all_.clear();
  }
  /// The last chunk is large enough a part of all, and not half used.
  void become_large() {
    allocate((large - 1) * per_chunk() + 1);
    calls_ = 0;
  }
  std::size_t held_chunks() {
    const auto s = pool_.stats();
    return s.nodes_total / per_chunk() - (s.bytes_reserved - s.bytes_held) / slab_pool::chunk_bytes;
  }
  void use_half() { allocate(per_chunk() / 2 + slab_pool_access::cache_size); }

  watched_pages pages_;
  slab_pool pool_{56, slab_pool::header_bytes, nullptr, pages_};
  std::atomic<int> calls_{0};
  std::vector<void*> all_;
};

TEST_F(slab_ahead, asks_for_the_next_chunk_when_half_of_the_last_is_used) {
  become_large();
  allocate(per_chunk() / 2 - slab_pool_access::cache_size);
  EXPECT_EQ(calls_, 0);
  allocate(2 * slab_pool_access::cache_size);
  EXPECT_EQ(calls_, 1);
  allocate(per_chunk() / 4);
  EXPECT_EQ(calls_, 1) << "once is enough";
}

TEST_F(slab_ahead, does_not_ask_while_the_pool_is_small) {
  allocate((slab_pool_access::small)*per_chunk());
  EXPECT_EQ(calls_, 0);
  allocate((large - 1) * per_chunk() - all_.size());
  EXPECT_EQ(calls_, 1) << "that it can be trimmed";
  pool_.prepare();
  EXPECT_EQ(pages_.maps, static_cast<int>(large) - 1);
}

TEST_F(slab_ahead, does_nothing_unasked) {
  become_large();
  pool_.prepare();
  EXPECT_EQ(pages_.maps, static_cast<int>(large));
}

TEST_F(slab_ahead, needs_no_new_memory_for_the_chunk_that_was_prepared) {
  become_large();
  for (int round = 1; round <= 3; ++round) {
    use_half();
    EXPECT_EQ(calls_, round);
    pool_.prepare();
    const int maps = pages_.maps;
    EXPECT_EQ(maps, static_cast<int>(large) + round);
    pages_.refuses = true;
    allocate(per_chunk() / 2);
    pages_.refuses = false;
    EXPECT_EQ(pages_.maps, maps);
  }
  const std::set<void*> different(all_.begin(), all_.end());
  EXPECT_EQ(different.size(), all_.size());
  for (void* n : all_) ASSERT_EQ(&slab_pool::owner(n), &pool_);
  for (void* n : all_) ASSERT_EQ(pool_.at(slab_pool::index(n)), n);
}

TEST_F(slab_ahead, makes_a_chunk_itself_if_none_was_prepared) {
  become_large();
  use_half();
  allocate(per_chunk());
  EXPECT_EQ(pages_.maps, static_cast<int>(large) + 1);
  pool_.prepare();
  EXPECT_EQ(pages_.maps, static_cast<int>(large) + 2);
  EXPECT_EQ(calls_, 1);
}

TEST_F(slab_ahead, counts_what_is_ahead_as_reserved_and_held_and_not_as_nodes) {
  become_large();
  use_half();
  const auto before = pool_.stats();
  pool_.prepare();
  const auto after = pool_.stats();
  EXPECT_EQ(after.bytes_reserved, before.bytes_reserved + slab_pool::chunk_bytes);
  EXPECT_EQ(after.bytes_held, before.bytes_held + slab_pool::chunk_bytes);
  EXPECT_EQ(after.nodes_total, before.nodes_total);
  EXPECT_EQ(after.nodes_live, before.nodes_live);
}

TEST_F(slab_ahead, gives_a_chunk_that_is_not_used_back_at_the_second_trim) {
  become_large();
  use_half();
  pool_.prepare();
  pool_.trim();
  EXPECT_EQ(pages_.mapped.size(), large + 1);
  pool_.trim();
  EXPECT_EQ(pages_.mapped.size(), large);
  const auto s = pool_.stats();
  EXPECT_EQ(s.nodes_total, large * per_chunk());
  // It asks again when it grows again.
  allocate(slab_pool_access::cache_size);
  EXPECT_EQ(calls_, 2);
  pool_.prepare();
  pool_.trim();
  EXPECT_EQ(pages_.mapped.size(), large + 1) << "this one is new";
}

TEST_F(slab_ahead, can_be_trimmed_as_long_as_a_chunk_is_ahead) {
  become_large();
  use_half();
  pool_.prepare();
  EXPECT_TRUE(pool_.can_trim());
  // What it was asked for is not needed any more when it comes.
  pool_.trim();
  pool_.trim();
  allocate(slab_pool_access::cache_size);
  ASSERT_EQ(calls_, 2);
  free_all();
  pool_.trim();
  pool_.prepare();
  pool_.trim();
  EXPECT_LE(held_chunks(), slab_pool_access::small);
  ASSERT_TRUE(pool_.can_trim());
  pool_.trim();
  EXPECT_FALSE(pool_.can_trim());
  EXPECT_EQ(pages_.mapped.size(), large) << "the others keep their addresses";
}

TEST_F(slab_ahead, prefers_what_was_given_back) {
  become_large();
  allocate(2 * per_chunk());
  pool_.prepare();
  free_all();
  pool_.trim();
  ASSERT_GT(pool_.trim(), 2U);
  calls_ = 0;
  const int maps = pages_.maps;
  allocate(4 * per_chunk());
  pool_.prepare();
  EXPECT_EQ(pages_.maps, maps);
}

TEST_F(slab_ahead, goes_on_without_if_there_is_no_memory_for_it) {
  become_large();
  use_half();
  pages_.refuses = true;
  pool_.prepare();
  EXPECT_EQ(calls_, 1);
  EXPECT_THROW(allocate(per_chunk()), std::bad_alloc);
  EXPECT_EQ(calls_, 2) << "it is asked for again";
  pages_.refuses = false;
  pool_.prepare();
  const int maps = pages_.maps;
  allocate(per_chunk() / 2);
  EXPECT_EQ(pages_.maps, maps);
}

TEST_F(slab_ahead, ends_with_what_is_ahead) {
  {
    slab_pool pool{56, slab_pool::header_bytes, nullptr, pages_};
    const std::size_t many = large * per_chunk() - 1;
    for (std::size_t i = 0; i < many; ++i) static_cast<void>(pool.allocate());
    pool.prepare();
    EXPECT_EQ(pages_.mapped.size(), large + 1);
  }
  EXPECT_EQ(pages_.mapped.size(), 0U);
}

/// The system may take its time: others go on with what there is.
TEST_F(slab_ahead, lets_others_use_the_pool_while_the_system_finds_memory) {
  const std::size_t many = 4 * slab_pool_access::cache_size;
  allocate(many);
  int asked = 0;
  pages_.during_map = [&] {
    ++asked;
    std::thread other([&] {
      for (std::size_t i = 0; i < many; ++i) pool_.free(all_[i]);
    });
    other.join();
  };
  while (asked == 0) all_.push_back(pool_.allocate());
  EXPECT_EQ(asked, 1);
  pages_.during_map = nullptr;
}

/// Each of two threads finds that there is none, and makes one.
TEST_F(slab_ahead, keeps_one_of_two_chunks_that_were_made_at_the_same_time) {
  std::barrier both(2);
  pages_.during_map = [&] { both.arrive_and_wait(); };
  std::vector<void*> got[2];
  {
    std::vector<std::thread> threads;
    for (auto& mine : got) {
      threads.emplace_back([&] {
        for (int i = 0; i < 200; ++i) mine.push_back(pool_.allocate());
      });
    }
    for (auto& t : threads) t.join();
  }
  pages_.during_map = nullptr;
  EXPECT_EQ(pages_.maps, 2);
  EXPECT_EQ(pages_.mapped.size(), 1U);
  std::set<void*> different(got[0].begin(), got[0].end());
  different.insert(got[1].begin(), got[1].end());
  EXPECT_EQ(different.size(), 400U);
}

/// Threads grow and shrink the pool while another prepares and trims all the time.
TEST_F(slab_ahead, gives_each_node_one_user_whatever_is_prepared_and_dropped_meanwhile) {
  std::atomic<bool> done{false};
  std::thread caretaker([&] {
    for (unsigned n = 0; !done; ++n) {
      pool_.prepare();
      if (n % 8 == 0) pool_.trim();
      std::this_thread::yield();
    }
  });
  const std::size_t size = scale<std::size_t>(8, 4) * per_chunk();
  std::vector<std::thread> threads;
  for (std::uint64_t me = 1; me <= 3; ++me) {
    threads.emplace_back([&, me] {
      for (int wave = 0; wave < scale(8, 3); ++wave) {
        std::vector<std::uint64_t*> mine(size);
        for (auto*& n : mine) {
          n = static_cast<std::uint64_t*>(pool_.allocate());
          n[2] = address(n) + me;
        }
        for (auto* n : mine) {
          ASSERT_EQ(n[2], address(n) + me);
          pool_.free(n);
        }
      }
    });
  }
  for (auto& t : threads) t.join();
  done = true;
  caretaker.join();
  EXPECT_EQ(pool_.stats().nodes_live, 0U);
}

/// Takes so many from a pool that it asks for more, and waits for that.
template <class Take>
void expect_more_than_taken(Take&& take, auto&& stats) {
  take();
  const auto first = stats();
  const std::size_t per_chunk = first.nodes_total;
  for (std::size_t n = 8 * per_chunk - per_chunk / 4; n != 0; --n) take();
  EXPECT_EQ(stats().nodes_total, 8 * per_chunk);
  EXPECT_TRUE(eventually(
      [&] { return stats().bytes_reserved == first.bytes_reserved + 8 * slab_pool::chunk_bytes; }));
  EXPECT_EQ(stats().nodes_total, 8 * per_chunk);
}

/// In a runtime the monitor does it: for the nodes of timers, and for the engine.
TEST(monitor, has_memory_ready_for_the_timers_to_come) {
  runtime rt{{.processors = 2, .engine = engine::hybrid}};
  auto& timers = detail::scheduler_of(rt).timers();
  std::vector<timer> all;
  expect_more_than_taken([&] { all.push_back(after_func(rt, 1h, [] {})); },
                         [&] { return timers.memory(); });
}

TEST(monitor, has_memory_ready_for_the_entries_of_timers_to_come) {
  runtime rt{{.processors = 2, .engine = engine::hybrid}};
  auto& chunks = detail::hybrid_access::chunks(detail::scheduler_of(rt).timers().its_engine());
  std::vector<void*> all;
  expect_more_than_taken([&] { all.push_back(chunks.allocate()); }, [&] { return chunks.stats(); });
  for (void* c : all) chunks.free(c);
}

}  // namespace
}  // namespace verge::test
