// The 4-ary heap beside a model that is too simple to be wrong: a sorted set of (when, node). The
// random walks make up most of it, ten million steps and more at sizes from 0 to a million;
// VERGE_TEST_SCALE=quick makes them shorter, for the sanitizers.
#include <queue/quad_heap.h>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <support/scale.h>

namespace {

using verge::detail::filter_verdict;
using verge::detail::heap_memory;
using verge::detail::quad_heap;
using verge::test::scale;

constexpr std::int64_t earliest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t latest = std::numeric_limits<std::int64_t>::max();

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

using plain_heap = quad_heap<node>;
using tracked_heap = quad_heap<node, index_in_node>;

template <class Heap>
std::vector<std::pair<std::int64_t, node*>> contents(const Heap& heap) {
  std::vector<std::pair<std::int64_t, node*>> all;
  for (const auto& e : heap) all.emplace_back(e.when, e.node);
  return all;
}

/// How a random walk chooses its times.
enum class times { spread, few, extreme, forward };

/// One heap and its model, taken through random operations together.
template <class Heap>
class walker {
 public:
  walker(std::size_t most, times kind, std::uint64_t seed)
      : nodes_(most), kind_(kind), random_(seed) {
    for (node& n : nodes_) free_.push_back(&n);
  }

  void fill() {
    while (!free_.empty()) push();
  }

  /// Every operation at random; the bulk ones so seldom that all of them together cost about as
  /// much as the rest. `growth` of 256 single operations are pushes.
  void step(unsigned growth) {
    if (random_() % (4 * nodes_.size() + 64) == 0) return bulk();
    const std::uint64_t dice = random_() % 256;
    if (model_.empty() || (dice < growth && !free_.empty())) return push();
    switch (dice % 4) {
      case 0:
        return pop();
      case 1:
        return remove();
      default:
        return update();
    }
  }

  [[nodiscard]] std::size_t size() const { return model_.size(); }

  /// The cheap checks, for after every step.
  void check_front() const {
    ASSERT_EQ(heap_.size(), model_.size());
    ASSERT_EQ(heap_.empty(), model_.empty());
    if (!model_.empty()) {
      ASSERT_EQ(heap_.front().when, model_.begin()->first);
    }
  }
  void check_order() const { ASSERT_TRUE(heap_.verify()) << heap_.describe_violation(); }
  void check_contents() const {
    auto all = contents(heap_);
    std::sort(all.begin(), all.end());
    ASSERT_TRUE(std::equal(all.begin(), all.end(), model_.begin(), model_.end()));
  }

  void drain() {
    while (!model_.empty()) {
      pop();
      check_front();
    }
  }

 private:
  std::int64_t time() {
    constexpr std::array<std::int64_t, 7> ends = {earliest, earliest + 1, -1,    0,
                                                  1,        latest - 1,   latest};
    switch (kind_) {
      case times::spread:
        return static_cast<std::int64_t>(random_());
      case times::few:
        return static_cast<std::int64_t>(random_() % 5);
      case times::extreme:
        return ends[random_() % ends.size()];
      case times::forward:
        return now_ += static_cast<std::int64_t>(random_() % 3);
    }
    return 0;
  }

  void push() {
    node* const n = free_.back();
    free_.pop_back();
    const std::int64_t when = time();
    heap_.push(when, n);
    model_.emplace(when, n);
  }

  void left(std::int64_t when, node* n) {
    ASSERT_EQ(model_.erase({when, n}), 1U) << "an entry that is not in the model, when " << when;
    n->index = node::nowhere;
    free_.push_back(n);
  }

  void pop() {
    const auto first = heap_.front();
    heap_.pop();
    left(first.when, first.node);
  }

  void remove() {
    const std::size_t i = random_() % heap_.size();
    const auto gone = heap_[i];
    const std::size_t changed = heap_.remove(i);
    ASSERT_LE(changed, i);
    left(gone.when, gone.node);
  }

  void update() {
    const std::size_t i = random_() % heap_.size();
    const auto old = heap_[i];
    const std::int64_t when = time();
    const std::size_t changed = heap_.update(i, when);
    ASSERT_LE(changed, i);
    model_.erase({old.when, old.node});
    model_.emplace(when, old.node);
  }

  void bulk() {
    switch (random_() % 6) {
      case 0:
        heap_.rebuild();
        break;
      case 1:
        heap_.shrink();
        break;
      case 2:
        heap_.reserve(random_() % (2 * nodes_.size() + 1));
        break;
      case 3:
        heap_ = Heap(std::move(heap_));
        break;
      default:
        filter();
    }
    check_order();
    check_contents();
  }

  void filter() {
    std::vector<std::pair<std::int64_t, node*>> dropped;
    // Those that are not suspected must be kept as they are.
    const auto suspect = [&](const auto&) { return random_() % 4 != 0; };
    const std::size_t count = heap_.filter(suspect, [&](auto& e) {
      const std::uint64_t dice = random_() % 8;
      if (dice == 0) {
        dropped.emplace_back(e.when, e.node);
        return filter_verdict::drop;
      }
      if (dice == 1) {
        model_.erase({e.when, e.node});
        e.when = time();
        model_.emplace(e.when, e.node);
      }
      return filter_verdict::keep;
    });
    ASSERT_EQ(count, dropped.size());
    for (const auto& [when, n] : dropped) left(when, n);
  }

  std::vector<node> nodes_;
  std::vector<node*> free_;
  times kind_;
  std::mt19937_64 random_;
  std::int64_t now_ = 0;
  Heap heap_;
  std::set<std::pair<std::int64_t, node*>> model_;
};

/// Walks at a size that swings between empty and `most`, and checks everything at each step up to
/// 64 entries, and beyond that about once in as many steps as there are entries.
template <class Heap>
void walk(std::size_t most, times kind, std::size_t steps) {
  SCOPED_TRACE(::testing::Message()
               << "up to " << most << " entries, times of kind " << static_cast<int>(kind));
  walker<Heap> w(most, kind, most + static_cast<std::size_t>(kind));
  steps = scale(steps, steps / 50 + 1);
  const std::size_t swing = 4 * most + 64;
  std::size_t until_check = 0;
  for (std::size_t i = 0; i < steps; ++i) {
    w.step(i / swing % 2 == 0 ? 168U : 64U);
    ASSERT_NO_FATAL_FAILURE(w.check_front());
    if (most <= 64 || until_check-- == 0) {
      ASSERT_NO_FATAL_FAILURE(w.check_order());
      until_check = most;
    }
    if (::testing::Test::HasFailure()) return;
  }
  ASSERT_NO_FATAL_FAILURE(w.check_contents());
  ASSERT_NO_FATAL_FAILURE(w.drain());
}

template <class Heap>
class quad_heap_walk : public ::testing::Test {};
using heaps = ::testing::Types<plain_heap, tracked_heap>;
struct heap_names {
  template <class Heap>
  static std::string GetName(int) {
    return std::is_same_v<Heap, plain_heap> ? "plain" : "tracked";
  }
};
TYPED_TEST_SUITE(quad_heap_walk, heaps, heap_names);

// With both heaps these are 2 x (2.4 + 2 + 1 + 0.3) million steps, 11.4 in all, and a million on
// top.

TYPED_TEST(quad_heap_walk, agrees_with_the_model_at_every_small_size) {
  for (std::size_t most = 1; most <= 24; ++most) {
    for (const times kind : {times::spread, times::few, times::extreme, times::forward}) {
      walk<TypeParam>(most, kind, 25'000);
    }
  }
}

TYPED_TEST(quad_heap_walk, agrees_with_the_model_up_to_64_entries) {
  for (const times kind : {times::spread, times::few, times::extreme, times::forward}) {
    walk<TypeParam>(64, kind, 500'000);
  }
}

TYPED_TEST(quad_heap_walk, agrees_with_the_model_at_thousands) {
  walk<TypeParam>(1'000, times::spread, 400'000);
  walk<TypeParam>(1'000, times::few, 200'000);
  walk<TypeParam>(10'000, times::extreme, 200'000);
  walk<TypeParam>(10'000, times::forward, 200'000);
}

TYPED_TEST(quad_heap_walk, agrees_with_the_model_at_a_hundred_thousand) {
  walk<TypeParam>(100'000, times::spread, 300'000);
}

TYPED_TEST(quad_heap_walk, agrees_with_the_model_at_a_million) {
  const auto most = scale<std::size_t>(1'000'000, 150'000);
  const auto steps = scale<std::size_t>(500'000, 20'000);
  walker<TypeParam> w(most, times::spread, 7);
  w.fill();
  ASSERT_NO_FATAL_FAILURE(w.check_order());
  for (std::size_t i = 0; i < steps; ++i) {
    w.step(85);
    ASSERT_NO_FATAL_FAILURE(w.check_front());
    if (i % (steps / 20) == 0) {
      ASSERT_NO_FATAL_FAILURE(w.check_order());
    }
  }
  ASSERT_GT(w.size(), most / 2);
  ASSERT_NO_FATAL_FAILURE(w.check_contents());
  ASSERT_NO_FATAL_FAILURE(w.drain());
}

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

// Go #47762: the scan went on behind the gap and never saw the entry that had come from the end.
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
  EXPECT_GT(missed_by_carrying_on, 0U) << "the heaps were too tame to show the difference";
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
  // The worst case: the order reversed, so that every entry sinks to the bottom. They are shown
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

// Memory. A policy that counts what is held, and can be told to fail at the nth request.

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

TEST(quad_heap_memory, running_out_at_any_point_leaves_the_heap_as_it_was) {
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
        heap.push(when, &nodes[i]);  // and it goes on when there is memory again
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

TEST(quad_heap_memory, a_reserve_that_fails_leaves_the_heap_as_it_was) {
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

TEST(quad_heap_memory, more_than_the_address_space_is_refused) {
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
  none.rlim_cur = 4096;  // 0 would mean: no limit but the hard one
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

TEST(quad_heap_memory, push_asks_for_none_while_there_is_room) {
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

TEST(quad_heap_memory, growing_asks_a_number_of_times_that_is_logarithmic) {
  node n;
  scripted_memory::script(0);
  scripted_heap heap;
  for (int i = 0; i < 1'000'000; ++i) heap.push(0, &n);
  EXPECT_LE(scripted_memory::requests, 18U);
  EXPECT_LE(heap.bytes(), 2U * 16U * 1'000'000U + heap_memory::huge_page);
  EXPECT_EQ(heap.bytes(), scripted_memory::held);
}

TEST(quad_heap_memory, shrink_gives_back_what_is_far_from_needed_and_only_that) {
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

TEST(quad_heap_memory, clear_keeps_the_memory_and_shrink_gives_it_back) {
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
