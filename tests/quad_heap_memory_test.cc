// SPDX-License-Identifier: Apache-2.0

// The memory of the 4-ary heap: when it allocates, what it releases, and that it is unchanged when
// out of memory.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstdint>
#include <new>
#include <vector>

#include <support/heap_nodes.h>
#include <support/replaced.h>
#include <verge/detail/heap_memory.h>

namespace {

/// How far from a boundary of huge pages mappings begin; 0: where the kernel likes.
std::size_t maps_past_huge_pages = 0;

}  // namespace

// NOLINTBEGIN: a replacement has the name and the type of what it replaces.
extern "C" void* mmap(void* at, size_t bytes, int protection, int flags, int fd,
                      off_t offset) noexcept {
  const auto map = VERGE_ORIGINAL(mmap);
  if (maps_past_huge_pages == 0 || at != nullptr) {
    return map(at, bytes, protection, flags, fd, offset);
  }
  constexpr std::size_t huge = verge::detail::heap_memory::huge_page;
  auto* const begin =
      static_cast<char*>(map(nullptr, bytes + 2 * huge, protection, flags, fd, offset));
  if (begin == MAP_FAILED) return begin;
  const std::size_t up = huge - reinterpret_cast<std::uintptr_t>(begin) % huge;
  char* const place = begin + up + maps_past_huge_pages;
  ::munmap(begin, up + maps_past_huge_pages);
  ::munmap(place + bytes, 2 * huge - up - maps_past_huge_pages);
  return place;
}
// NOLINTEND

namespace verge::test {
namespace {

using detail::heap_memory;
using detail::quad_heap;

/// Counts what is held, and can be told to fail at the nth request.
struct scripted_memory {
  static inline std::size_t held = 0;
  static inline std::size_t requests = 0;
  static inline std::size_t fail_at = 0;  // 0: never

  static void script(std::size_t fail) {
    requests = 0;
    fail_at = fail;
  }
  static constexpr std::size_t round_up(std::size_t bytes) { return heap_memory::round_up(bytes); }
  static void* allocate(std::size_t bytes) {
    ask();
    void* block = heap_memory::allocate(bytes);
    held += bytes;
    return block;
  }
  static void* resize(void* block, std::size_t from, std::size_t to, std::size_t used) {
    ask();
    void* moved = heap_memory::resize(block, from, to, used);
    held += to - from;
    return moved;
  }
  static void release(void* block, std::size_t bytes) noexcept {
    heap_memory::release(block, bytes);
    held -= bytes;
  }

 private:
  static void ask() {
    if (++requests == fail_at) throw std::bad_alloc();
  }
};

using scripted_heap = quad_heap<node, index_in_node, scripted_memory>;

TEST(quad_heap_memory, running_out_at_any_point_leaves_the_heap_unchanged) {
  const std::size_t size = 200'000;  // the last growth goes to mapped memory and within it
  std::vector<node> nodes(size);
  std::size_t failures = 0;
  for (std::size_t fail_at = 1;; ++fail_at) {
    scripted_memory::script(fail_at);
    scripted_heap heap;
    bool failed = false;
    for (std::size_t i = 0; i < size; ++i) {
      const std::int64_t when = static_cast<std::int64_t>(i * 7919 % 100'003);
      if (heap.size() < heap.capacity()) {
        heap.push(when, &nodes[i]);
        continue;
      }
      const auto before = contents(heap);
      const std::size_t capacity = heap.capacity();
      try {
        heap.push(when, &nodes[i]);
      } catch (const std::bad_alloc&) {
        failed = true;
        ASSERT_EQ(contents(heap), before);
        ASSERT_EQ(heap.capacity(), capacity);
        ASSERT_EQ(heap.bytes(), scripted_memory::held);
        ASSERT_TRUE(heap.verify()) << heap.describe_violation();
        heap.push(when, &nodes[i]);  // and it continues when there is memory again
      }
    }
    ASSERT_EQ(heap.size(), size);
    ASSERT_TRUE(heap.verify()) << heap.describe_violation();
    if (!failed) break;
    ++failures;
  }
  EXPECT_EQ(failures, scripted_memory::requests) << "every request has failed once";
  EXPECT_GE(failures, 10U);
  EXPECT_EQ(scripted_memory::held, 0U);
}

TEST(quad_heap_memory, a_reserve_that_fails_leaves_the_heap_unchanged) {
  std::vector<node> nodes(100);
  scripted_memory::script(0);
  scripted_heap heap;
  for (node& n : nodes) heap.push(&n - nodes.data(), &n);
  const auto before = contents(heap);
  const std::size_t bytes = heap.bytes();
  scripted_memory::script(1);
  EXPECT_THROW(heap.reserve(1000), std::bad_alloc);
  EXPECT_EQ(contents(heap), before);
  EXPECT_EQ(heap.bytes(), bytes);
}

TEST(quad_heap_memory, more_than_the_address_space_is_rejected) {
  for (const std::size_t start : {0U, 10U, 200'000U}) {
    plain_heap heap;
    heap.reserve(start);
    heap.push(1, nullptr);
    const std::size_t bytes = heap.bytes();
    for (const std::size_t n : {std::size_t{1} << 44, ~std::size_t{0} / 16, ~std::size_t{0}}) {
      EXPECT_THROW(heap.reserve(n), std::bad_alloc) << n;
    }
    EXPECT_EQ(heap.bytes(), bytes);
    EXPECT_EQ(heap.front().when, 1);
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need memory themselves
TEST(quad_heap_memory, a_mapped_array_that_the_kernel_will_not_enlarge_stays_where_it_is) {
  std::vector<node> nodes(200'000);
  tracked_heap heap;
  for (node& n : nodes) heap.push(&n - nodes.data(), &n);
  const std::size_t bytes = heap.bytes();
  const auto* const first = &heap.front();

  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_DATA, &limit), 0);
  rlimit none = limit;
  none.rlim_cur = 4096;  // 0 would mean: only the hard limit
  bool refused = false;
  ASSERT_EQ(::setrlimit(RLIMIT_DATA, &none), 0);
  try {
    heap.reserve(10'000'000);
  } catch (const std::bad_alloc&) {
    refused = true;
  }
  ASSERT_EQ(::setrlimit(RLIMIT_DATA, &limit), 0);

  EXPECT_TRUE(refused);
  EXPECT_EQ(heap.bytes(), bytes);
  EXPECT_EQ(&heap.front(), first);
  EXPECT_TRUE(heap.verify()) << heap.describe_violation();
  heap.reserve(10'000'000);
  EXPECT_GE(heap.capacity(), 10'000'000U);
  EXPECT_TRUE(heap.verify()) << heap.describe_violation();
}
#endif

/// Wherever the kernel maps it, and after it was moved.
TEST(quad_heap_memory, a_mapped_array_begins_on_a_huge_page) {
  constexpr std::size_t huge = heap_memory::huge_page;
  const auto past = [](void* p) { return reinterpret_cast<std::uintptr_t>(p) % huge; };
  for (const std::size_t off : {std::size_t{0}, std::size_t{4096}, huge - 4096}) {
    maps_past_huge_pages = off;
    void* block = heap_memory::allocate(huge);
    EXPECT_EQ(past(block), 0U) << off;
    block = heap_memory::resize(block, huge, 3 * huge, 64);
    EXPECT_EQ(past(block), 0U) << off;
    static_cast<char*>(block)[3 * huge - 1] = 1;
    heap_memory::release(block, 3 * huge);
  }
  maps_past_huge_pages = 0;
}

/// All of it, and not only what the caller says is used: that is the least.
TEST(quad_heap_memory, the_pages_of_a_mapped_array_move_and_are_not_copied) {
  constexpr std::size_t huge = heap_memory::huge_page;
  auto* block = static_cast<char*>(heap_memory::allocate(huge));
  block[huge - 1] = 7;
  for (const std::size_t to : {2 * huge, 5 * huge}) {
    block = static_cast<char*>(heap_memory::resize(block, to == 2 * huge ? huge : 2 * huge, to, 0));
    EXPECT_EQ(block[huge - 1], 7) << to / huge;
  }
  heap_memory::release(block, 5 * huge);
}

TEST(quad_heap_memory, push_does_not_allocate_while_there_is_room) {
  node n;
  scripted_memory::script(0);
  scripted_heap heap;
  heap.reserve(1000);
  EXPECT_EQ(scripted_memory::requests, 1U);
  while (heap.size() < heap.capacity()) heap.push(0, &n);
  EXPECT_EQ(scripted_memory::requests, 1U);
  EXPECT_GE(heap.size(), 1000U);
  heap.push(0, &n);
  EXPECT_EQ(scripted_memory::requests, 2U);
}

TEST(quad_heap_memory, growing_allocates_a_logarithmic_number_of_times) {
  node n;
  scripted_memory::script(0);
  scripted_heap heap;
  for (int i = 0; i < 1'000'000; ++i) heap.push(0, &n);
  EXPECT_LE(scripted_memory::requests, 18U);
  EXPECT_LE(heap.bytes(), 2U * 16U * 1'000'000U + heap_memory::huge_page);
  EXPECT_EQ(heap.bytes(), scripted_memory::held);
}

TEST(quad_heap_memory, shrink_releases_only_far_more_than_needed) {
  const std::size_t size = 500'000;
  std::vector<node> nodes(size);
  scripted_memory::script(0);
  scripted_heap heap;
  for (node& n : nodes) heap.push(&n - nodes.data(), &n);
  EXPECT_FALSE(heap.shrink()) << "it is full";

  std::size_t shrunk = 0;
  while (!heap.empty()) {
    heap.pop();
    const std::size_t capacity = heap.capacity();
    if (!heap.shrink()) {
      ASSERT_TRUE(capacity <= 16 || heap.size() >= capacity / 4);
      continue;
    }
    ++shrunk;
    ASSERT_LT(heap.size(), capacity / 4);
    ASSERT_EQ(heap.bytes(), scripted_memory::held);
    ASSERT_TRUE(heap.verify()) << heap.describe_violation();
    ASSERT_GE(heap.capacity(), 2 * heap.size());
  }
  EXPECT_EQ(scripted_memory::held, 0U);
  EXPECT_GT(shrunk, 8U);
  EXPECT_LT(shrunk, 24U);
}

TEST(quad_heap_memory, a_shrink_that_fails_changes_nothing) {
  std::vector<node> nodes(10);
  scripted_memory::script(0);
  scripted_heap heap;
  heap.reserve(10'000);
  for (node& n : nodes) heap.push(&n - nodes.data(), &n);
  const auto before = contents(heap);
  const std::size_t bytes = heap.bytes();
  scripted_memory::script(1);
  EXPECT_FALSE(heap.shrink());
  EXPECT_EQ(contents(heap), before);
  EXPECT_EQ(heap.bytes(), bytes);
}

TEST(quad_heap_memory, clear_keeps_the_memory_and_shrink_releases_it) {
  plain_heap heap;
  heap.reserve(1'000'000);
  const std::size_t bytes = heap.bytes();
  EXPECT_GE(bytes, 16'000'000U);
  heap.push(1, nullptr);
  heap.clear();
  EXPECT_EQ(heap.bytes(), bytes);
  EXPECT_TRUE(heap.shrink());
  EXPECT_EQ(heap.bytes(), 0U);
  heap.push(1, nullptr);
  EXPECT_EQ(heap.size(), 1U);
}

}  // namespace
}  // namespace verge::test
