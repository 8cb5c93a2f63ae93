// SPDX-License-Identifier: Apache-2.0

// The state machine out of memory: the allocator fails at every point in turn, and each operation
// leaves everything unchanged and can be repeated.
#include <engine/ten_states/bad_timer.h>
#include <engine/ten_states/state_machine.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <new>
#include <tuple>
#include <vector>

namespace verge::detail {
namespace {

struct scarce : heap_memory {
  /// How many more allocations succeed; below zero: all.
  inline static int left = -1;
  inline static int made = 0;

  static void count() {
    if (left == 0) throw std::bad_alloc();
    if (left > 0) --left;
    ++made;
  }
  static void* allocate(std::size_t bytes) {
    count();
    return heap_memory::allocate(bytes);
  }
  static void* resize(void* block, std::size_t from, std::size_t to, std::size_t used) {
    count();
    return heap_memory::resize(block, from, to, used);
  }
};

struct poor {
  template <class T>
  using atomic = std::atomic<T>;
  using lock = std::mutex;
  using memory = scarce;
  using timer = basic_timer<poor>;
  using timers = basic_timers<poor>;

  static void yield() {}
  static void wake_net_poller(timers&, std::int64_t) { ++wakes; }
  static void acquire(timer&) { ++references; }
  static void release(timer&) { --references; }
  [[noreturn]] static void bad_timer(const char* operation, const timer& t, timer_state s) {
    abort_on_bad_timer(operation, &t, s, t.when);
  }

  inline static int wakes = 0;
  inline static int references = 0;
};

/// The complete state of a heap and its timers.
struct picture {
  std::vector<std::tuple<timer_state, std::int64_t, std::int64_t, std::uint64_t>> timers;
  std::vector<std::pair<std::int64_t, const void*>> entries;
  std::int64_t next;
  std::int32_t deleted;
  std::uint32_t number;
  int references;
  int wakes;

  bool operator==(const picture&) const = default;
};

class without_memory : public testing::Test {
 protected:
  without_memory() : timers_(60) {
    for (std::size_t i = 0; i < timers_.size(); ++i) {
      timers_[i].when = 100 + static_cast<std::int64_t>(i * 37 % 60);
      timers_[i].f = [](poor::timer&, std::uint64_t, std::int64_t) noexcept {};
    }
    scarce::left = -1;
    poor::references = poor::wakes = 0;
  }
  ~without_memory() override { scarce::left = -1; }

  picture look(const poor::timers& ts) const {
    picture p{};
    for (const poor::timer& t : timers_) p.timers.emplace_back(t.state, t.when, t.period, t.seq);
    for (const auto& e : ts.heap) p.entries.emplace_back(e.when, e.node);
    p.next = next_when(ts);
    p.deleted = ts.deleted_timers;
    p.number = ts.num_timers;
    p.references = poor::references;
    p.wakes = poor::wakes;
    return p;
  }

  /// Performs it without memory, which must fail and change nothing if it needs any; then with
  /// memory.
  template <class F>
  void do_it(F&& f) {
    const picture before = look(heap_);
    const picture before_other = look(other_);
    scarce::left = 0;
    bool failed = false;
    try {
      f();
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    scarce::left = -1;
    if (!failed) return;
    ++failures_;
    EXPECT_EQ(look(heap_), before);
    EXPECT_EQ(look(other_), before_other);
    f();
  }

  poor::timers heap_;
  poor::timers other_;
  std::vector<poor::timer> timers_;
  int failures_ = 0;
};

TEST_F(without_memory, add_leaves_the_timer_new) {
  for (poor::timer& t : timers_) {
    do_it([&] { add_timer(heap_, t); });
    EXPECT_EQ(t.state, timer_state::waiting);
  }
  EXPECT_GE(failures_, 3);  // 13 entries, then about twice as many, twice
  EXPECT_EQ(heap_.heap.size(), timers_.size());
  EXPECT_TRUE(heap_.heap.verify());
}

TEST_F(without_memory, add_does_not_clean_what_it_then_cannot_add_to) {
  std::size_t i = 0;
  add_timer(heap_, timers_[i++]);
  while (heap_.heap.size() < heap_.heap.capacity()) add_timer(heap_, timers_[i++]);
  for (std::size_t j = 0; j < i; ++j) del_timer(timers_[j]);
  do_it([&] { add_timer(heap_, timers_[i]); });
  EXPECT_EQ(failures_, 1);
}

TEST_F(without_memory, mod_and_reset_leave_the_timer_new_or_removed) {
  for (std::size_t i = 0; i < timers_.size(); ++i) {
    poor::timer& t = timers_[i];
    if (i % 2 == 0) {
      // On the other heap and off again: removed.
      add_timer(other_, t);
      del_timer(t);
      clear_deleted_timers(other_);
      ASSERT_EQ(t.state, timer_state::removed);
    }
    if (i % 3 == 0) {
      do_it([&] { EXPECT_FALSE(mod_timer(heap_, t, 500, 20, t.f, 9)); });
    } else {
      do_it([&] { EXPECT_FALSE(reset_timer(heap_, t, 500)); });
    }
    EXPECT_EQ(t.state, timer_state::waiting);
  }
  EXPECT_GE(failures_, 3);
  EXPECT_EQ(poor::references, static_cast<int>(timers_.size()));
}

TEST_F(without_memory, stop_and_reset_of_a_timer_on_a_heap_need_none) {
  for (poor::timer& t : timers_) add_timer(heap_, t);
  scarce::left = 0;
  scarce::made = 0;
  for (poor::timer& t : timers_) {
    EXPECT_TRUE(reset_timer(heap_, t, 50));
    EXPECT_TRUE(del_timer(t));
    EXPECT_FALSE(reset_timer(heap_, t, 700));
    EXPECT_TRUE(mod_timer(heap_, t, 40, 0, t.f, 3));
  }
  const std::lock_guard lock(heap_.lock);
  adjust_timers(heap_, 45);
  EXPECT_TRUE(heap_.heap.verify());
  while (run_timer(heap_, 45) == 0) {
  }
  EXPECT_TRUE(heap_.heap.empty());
  EXPECT_EQ(scarce::made, 0);
  EXPECT_EQ(poor::references, 0);
}

TEST_F(without_memory, move_moves_all_or_none) {
  for (std::size_t i = 0; i < timers_.size(); ++i) {
    add_timer(i % 4 == 0 ? other_ : heap_, timers_[i]);
  }
  for (std::size_t i = 0; i < timers_.size(); i += 5) del_timer(timers_[i]);
  for (std::size_t i = 1; i < timers_.size(); i += 5) reset_timer(heap_, timers_[i], 50);
  do_it([&] {
    std::scoped_lock both(heap_.lock, other_.lock);
    move_timers(other_, heap_);
  });
  EXPECT_EQ(failures_, 1);
  EXPECT_TRUE(heap_.heap.empty());
  EXPECT_TRUE(other_.heap.verify());
  EXPECT_EQ(next_when(other_), 50);
}

}  // namespace
}  // namespace verge::detail
