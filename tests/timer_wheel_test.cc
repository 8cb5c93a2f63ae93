// SPDX-License-Identifier: Apache-2.0

// timer_wheel alone, against a sorted set, at times and with limits that are hard on it: exactly at
// the boundaries of slots, and out of steps in the middle of a large slot.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <utility>

#include <support/scale.h>
#include <verge/detail/timer_wheel.h>

namespace verge::detail {
namespace {

struct chunks {
  static constexpr std::size_t bytes = 504;
  void* allocate() noexcept { return std::malloc(bytes); }
  void free(void* p) noexcept { std::free(p); }
};
using wheel_type = timer_wheel<chunks>;

/// A wheel, and what should be in it.
class checked_wheel {
 public:
  explicit checked_wheel(std::int64_t start) : wheel_(chunks{}, start) {}

  void insert(std::int64_t when) {
    const std::uint32_t id = next_++;
    wheel_.insert(when, id, 0);
    keys_[id] = when;
    all_.insert({when, id});
    check();
  }
  /// Takes out what is due, as an owner does, in at most so many steps. False if they ran out.
  bool run(std::int64_t now, unsigned steps = std::numeric_limits<unsigned>::max()) {
    wheel_.advance(now);
    check();
    while (wheel_.ready(now, *this, steps)) {
      const auto head = wheel_.front();
      wheel_.pop();
      const std::int64_t key = keys_.at(head.id);
      EXPECT_LE(head.when, key) << "a key is never later than the timer";
      if (head.when < key) {  // in a large slot keys are not exact
        wheel_.insert(key, head.id, head.token);
        continue;
      }
      EXPECT_LE(key, now) << "early";
      EXPECT_EQ(key, all_.begin()->first) << "out of order";
      all_.erase({key, head.id});
      check();
    }
    check();
    if (steps == 0) return false;
    EXPECT_TRUE(all_.empty() || all_.begin()->first > now) << "late, by " << now - first();
    return true;
  }
  /// No thread may sleep past the first: what the wheel says is no later.
  void check() {
    ASSERT_EQ(wheel_.describe_violation(), "");
    ASSERT_EQ(wheel_.size(), all_.size());
    if (all_.empty()) {
      ASSERT_EQ(wheel_.first(), 0);
    } else {
      ASSERT_NE(wheel_.first(), 0);
      ASSERT_LE(wheel_.first(), first()) << "a thread would sleep past the first";
    }
  }
  [[nodiscard]] std::int64_t first() const { return all_.begin()->first; }
  [[nodiscard]] std::int64_t said() const { return wheel_.first(); }
  [[nodiscard]] bool empty() const { return all_.empty(); }

  // What the wheel asks.
  void prefetch(std::uint32_t) {}
  std::int64_t when(std::uint32_t id, std::uint32_t) { return keys_.at(id); }
  static bool stale(std::uint32_t, std::uint32_t) { return false; }

 private:
  wheel_type wheel_;
  std::map<std::uint32_t, std::int64_t> keys_;
  std::set<std::pair<std::int64_t, std::uint32_t>> all_;
  std::uint32_t next_ = 1;
};

constexpr unsigned near_bits = 16;
constexpr unsigned digit_bits = 6;

/// A slot of each level begins at a round time. A timer at that time, looked at exactly then, a
/// nanosecond before, and one after.
TEST(timer_wheel, is_right_when_looked_at_exactly_at_the_start_of_a_slot) {
  for (unsigned level = 0; level < 7; ++level) {
    const std::int64_t slot = std::int64_t{1} << (near_bits + level * digit_bits);
    for (const std::int64_t base : {slot * 3, slot * 3 + 1, slot * 3 + slot / 2, slot * 64 - 1}) {
      for (const std::int64_t ahead : {1, 2, 5}) {
        const std::int64_t start = (base / slot + ahead) * slot;
        for (const std::int64_t off : {std::int64_t{0}, std::int64_t{1}, slot - 1}) {
          for (const std::int64_t look : {start - 1, start, start + 1}) {
            SCOPED_TRACE(testing::Message() << "level " << level << ", base " << base << ", timer "
                                            << start + off << ", looked at " << look);
            checked_wheel w(base);
            w.insert(start + off);
            w.insert(start + slot);
            ASSERT_TRUE(w.run(look));
            w.insert(start + off + 1);
            w.insert(start + 2 * slot);
            ASSERT_TRUE(w.run(start + off));
            ASSERT_TRUE(w.run(start + 2 * slot));
            ASSERT_TRUE(w.empty());
          }
        }
      }
    }
  }
}

/// Sixty thousand timers in a quarter of a second, as after a start: the slots are large, and a
/// check runs out of steps in the middle of one. What is left there still counts as first.
TEST(timer_wheel, does_not_forget_the_slot_that_it_is_emptying_when_the_steps_run_out) {
  std::mt19937_64 random(1);
  constexpr std::int64_t ms = 1'000'000;
  const std::int64_t begin = 1000 * ms;
  checked_wheel w(begin);
  const int timers = test::scale(6'000, 2'000);
  for (int i = 0; i < timers; ++i) {
    w.insert(begin + 20 * ms + static_cast<std::int64_t>(random() % (250 * ms)));
  }
  std::int64_t now = begin;
  int ran_out = 0;
  for (int i = 0; i < 10 * timers && !w.empty(); ++i) {
    // As a thread that sleeps until the time that the wheel says.
    now = std::max(now, w.said());
    if (!w.run(now, 1 + static_cast<unsigned>(random() % 3))) ++ran_out;
    if (HasFatalFailure() || testing::Test::HasFailure()) return;
  }
  EXPECT_TRUE(w.empty());
  EXPECT_GT(ran_out, timers / 200) << "it is what the test is for";
}

/// Random times near the boundaries of slots, random looks, random limits.
TEST(timer_wheel, does_what_a_sorted_set_does_near_the_boundaries_of_slots) {
  for (unsigned seed = 1; seed <= test::scale(60U, 15U); ++seed) {
    std::mt19937_64 random(seed);
    const auto up_to = [&](std::uint64_t n) {
      return static_cast<std::int64_t>(random() % (n + 1));
    };
    std::int64_t now = up_to(1U << 30) + 1;
    checked_wheel w(now);
    for (int i = 0; i < 300; ++i) {
      const std::int64_t slot = std::int64_t{1} << (near_bits + up_to(4) * digit_bits);
      const std::int64_t round = (now / slot + up_to(66)) * slot + up_to(4) - 2;
      switch (up_to(3)) {
        case 0:
          now = std::max(now, round);
          [[fallthrough]];
        case 1:
          w.run(now, static_cast<unsigned>(up_to(6)));
          break;
        default:
          w.insert(std::max<std::int64_t>(round, 1));
      }
      if (testing::Test::HasFailure()) {
        ADD_FAILURE() << "seed " << seed << ", step " << i;
        return;
      }
    }
  }
}

/// Memory that is counted.
struct counted_chunks {
  int* in_use;
  void* allocate() noexcept { return ++*in_use, std::malloc(chunks::bytes); }
  void free(void* p) noexcept { --*in_use, std::free(p); }
};

TEST(timer_wheel, keeps_what_is_far_out_of_the_heap_and_gives_all_memory_back) {
  int in_use = 0;
  {
    timer_wheel<counted_chunks> w(counted_chunks{&in_use});
    for (std::uint32_t i = 1; i <= 1000; ++i) w.insert(std::int64_t{i} << 30, i, 0);
    EXPECT_EQ(w.near_size(), 0U);
    EXPECT_NE(w.used(2), 0U);
    EXPECT_GT(in_use, 10);
    w.clear();
    EXPECT_EQ(in_use, 0);
    EXPECT_TRUE(w.empty());
    w.insert(1 << 30, 1, 0);
    EXPECT_EQ(in_use, 1);
    EXPECT_EQ(w.bytes(), 512U) << "of a chunk, with what the pool adds to it";
  }
  EXPECT_EQ(in_use, 0);
}

struct no_chunks_left {
  static void* allocate() noexcept { return nullptr; }
  static void free(void*) noexcept { ADD_FAILURE() << "there is none"; }
};

TEST(timer_wheel, gives_no_more_than_it_is_asked_for_and_the_rest_of_a_chunk) {
  constexpr std::size_t slots = 20;
  constexpr std::size_t in_each = 3;
  for (std::size_t about = 0; about <= slots * in_each + 1; ++about) {
    wheel_type from(chunks{}, 0);
    wheel_type to(chunks{}, 0);
    std::uint32_t id = 1;
    for (std::size_t i = 0; i < slots; ++i) {
      for (std::size_t n = 0; n < in_each; ++n) {
        from.reserve();
        from.insert(static_cast<std::int64_t>(i + 2) << 36, id++, 0);
      }
    }
    to.reserve();
    EXPECT_TRUE(from.give(to, about));
    EXPECT_EQ(from.size() + to.size(), slots * in_each);
    EXPECT_GE(to.size(), std::min(about, slots * in_each));
    EXPECT_LE(to.size(), about == 0 ? 0 : about + 31) << "a chunk has no more";
    if (about + 40 < slots * in_each) {
      EXPECT_LT(to.size(), slots * in_each) << about;
    }
    EXPECT_EQ(from.describe_violation(), "");
    EXPECT_EQ(to.describe_violation(), "");
    from.clear([](std::uint32_t, std::uint32_t) {});
    to.clear([](std::uint32_t, std::uint32_t) {});
  }
}

TEST(timer_wheel, has_no_more_memory_after_it_got_none) {
  timer_wheel<no_chunks_left> w(no_chunks_left{});
  const std::size_t before = w.bytes();
  EXPECT_THROW(w.reserve(), std::bad_alloc);
  EXPECT_EQ(w.bytes(), before);
}

/// From a slot of the lowest level entries go into the heap, under their exact times, though they
/// are many: else a thread would wake 65 us early for them.
TEST(timer_wheel, has_the_exact_time_of_what_is_in_the_heap) {
  constexpr std::uint32_t count = 500;
  const auto time_of = [](std::uint32_t id) { return (5 << near_bits) + std::int64_t{id} * 97; };
  struct owner_type {
    decltype(time_of)& of;
    void prefetch(std::uint32_t) {}
    std::int64_t when(std::uint32_t id, std::uint32_t) { return of(id); }
    static bool stale(std::uint32_t, std::uint32_t) { return false; }
  } owner{time_of};
  wheel_type w;
  for (std::uint32_t id = 1; id <= count; ++id) w.insert(time_of(id), id, 0);
  ASSERT_EQ(w.near_size(), 0U);
  unsigned steps = 1000;
  for (std::uint32_t id = 1; id <= count; ++id) {
    ASSERT_TRUE(w.ready(time_of(id), owner, steps));
    EXPECT_EQ(w.front().id, id);
    EXPECT_EQ(w.front().when, time_of(id));
    w.pop();
  }
  EXPECT_TRUE(w.empty());
}

/// A sweep goes from one used slot to the next, and what is between them is not looked at.
TEST(timer_wheel, is_swept_wherever_its_only_slots_are) {
  struct owner_type {
    void prefetch(std::uint32_t) {}
    static std::int64_t when(std::uint32_t, std::uint32_t) { return 0; }
    static bool stale(std::uint32_t id, std::uint32_t) { return id == 2; }
  } owner;
  for (unsigned level = 0; level < 3; ++level) {
    const unsigned bits = near_bits + level * digit_bits;
    for (std::int64_t first = 1; first < 64; ++first) {
      for (const std::int64_t second : {first, first / 2 + 1, std::int64_t{63}}) {
        SCOPED_TRACE(testing::Message() << "level " << level << ": " << first << ", " << second);
        wheel_type w(chunks{}, std::int64_t{64} << bits);
        w.insert((64 + first) << bits, 1, 0);
        w.insert((64 + second) << bits, 2, 0);
        ASSERT_NE(w.used(level), 0U);
        ASSERT_TRUE(w.sweep(owner, 10));
        ASSERT_EQ(w.describe_violation(), "");
        ASSERT_EQ(w.size(), 1U);
        ASSERT_EQ(w.used(level), std::uint64_t{1} << first);
      }
    }
  }
}

/// The slot that is being emptied is passed over, and those below it are swept.
TEST(timer_wheel, is_swept_while_a_slot_is_being_emptied) {
  struct owner_type {
    void prefetch(std::uint32_t) {}
    static std::int64_t when(std::uint32_t id, std::uint32_t) { return time_of(id); }
    static bool stale(std::uint32_t id, std::uint32_t) { return id % 2 == 0; }
    static std::int64_t time_of(std::uint32_t id) {
      return (std::int64_t{id <= 2000 ? 3 : 9} << (near_bits + digit_bits)) + 97 * id;
    }
  } owner;
  wheel_type w;
  for (std::uint32_t id = 1; id <= 2100; ++id) w.insert(owner_type::time_of(id), id, 0);
  unsigned steps = 3;
  ASSERT_FALSE(w.ready(owner_type::time_of(1) - 1000, owner, steps)) << "it is not yet time";
  const std::size_t before = w.size();
  unsigned more = 2;
  ASSERT_FALSE(w.ready(owner_type::time_of(1), owner, more)) << "it has 2000 entries";
  ASSERT_EQ(w.size(), before);
  int calls = 0;
  while (!w.sweep(owner, 1)) ASSERT_LT(++calls, 200);
  ASSERT_EQ(w.describe_violation(), "");
  EXPECT_LT(w.size(), before);
  unsigned all = 100'000;
  std::int64_t last = 0;
  while (w.ready(std::int64_t{1} << 40, owner, all)) {
    EXPECT_GE(w.front().when, last);
    last = w.front().when;
    w.pop();
  }
  EXPECT_TRUE(w.empty());
}

/// Every second one is out of date: in the heap, in small slots, and in slots of many chunks.
TEST(timer_wheel, drops_what_is_out_of_date_wherever_it_is) {
  struct owner_type {
    void prefetch(std::uint32_t) {}
    static std::int64_t when(std::uint32_t, std::uint32_t) { return 0; }
    static bool stale(std::uint32_t id, std::uint32_t) { return id % 2 == 0; }
  } owner;
  int in_use = 0;
  timer_wheel<counted_chunks> w(counted_chunks{&in_use});
  std::uint32_t id = 0;
  for (const std::int64_t when : {std::int64_t{100}, std::int64_t{5} << near_bits,
                                  std::int64_t{1} << 30, std::int64_t{1} << 40}) {
    for (std::uint32_t n = 0; n < 200; ++n) w.insert(when + n, ++id, 0);
  }
  ASSERT_EQ(w.near_size(), 200U);
  EXPECT_EQ(in_use, 3 * 4) << "a chunk has 61 entries";
  int calls = 0;
  while (!w.sweep(owner, 1)) {
    ASSERT_EQ(w.describe_violation(), "");
    ASSERT_LT(++calls, 100) << "a step is a chunk";
  }
  EXPECT_EQ(w.describe_violation(), "");
  EXPECT_EQ(w.size(), id / 2);
  EXPECT_EQ(w.near_size(), 100U);
  EXPECT_EQ(in_use, 3 * 2 + 1) << "one is kept in reserve";
  int left = 0;
  w.clear([&](std::uint32_t each, std::uint32_t) {
    EXPECT_EQ(each % 2, 1U);
    ++left;
  });
  EXPECT_EQ(left, 400);
  EXPECT_EQ(in_use, 0);
}

}  // namespace
}  // namespace verge::detail
