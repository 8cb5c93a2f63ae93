#include <queue/quad_heap.h>

#include <gtest/gtest.h>

namespace {
struct node {
  std::size_t index;
};
TEST(quad_heap, entries_come_out_in_order_of_time) {
  verge::detail::quad_heap<node> heap;
  std::uint64_t x = 1;
  for (int i = 0; i < 200000; ++i) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    heap.push(static_cast<std::int64_t>(x), nullptr);
    if (i % 1000 == 0) {
      ASSERT_TRUE(heap.verify()) << heap.describe_violation();
    }
  }
  std::int64_t last = INT64_MIN;
  while (!heap.empty()) {
    ASSERT_LE(last, heap.front().when);
    last = heap.front().when;
    heap.pop();
  }
}
}  // namespace
