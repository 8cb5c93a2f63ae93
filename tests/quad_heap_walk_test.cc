// SPDX-License-Identifier: Apache-2.0

// The 4-ary heap compared with a simple model: a sorted set of (when, node). Random walks, ten
// million steps and more at sizes from 0 to a million; VERGE_TEST_SCALE=quick makes them shorter,
// for the sanitizers.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <support/heap_nodes.h>
#include <support/scale.h>

namespace verge::test {
namespace {

using detail::filter_verdict;

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

  /// Random operations; the bulk ones so rarely that all of them together cost about as much as the
  /// rest. `growth` of 256 single operations are pushes.
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

}  // namespace
}  // namespace verge::test
