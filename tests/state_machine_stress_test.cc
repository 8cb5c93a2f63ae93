// SPDX-License-Identifier: Apache-2.0

// The state machine on real threads, for the thread sanitizer and for what the explorer cannot
// find: memory reordering. Processors run, adjust, clear and move their timers, and check each
// other's, while other threads stop and reset all of them.
//
// Time is a counter that the users advance. Every arming of a timer ends in exactly one of three
// ways: it fires, a stop returns true, or a reset returns true and replaces it. So in the end the
// numbers must agree, timer by timer.
#include <engine/ten_states/bad_timer.h>
#include <engine/ten_states/state_machine.h>
#include <gtest/gtest.h>
#include <support/scale.h>

#include <atomic>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace verge::detail {
namespace {

/// Nodes on the free store, so that a sanitizer finds a late access.
struct threads {
  template <class T>
  using atomic = std::atomic<T>;
  using lock = std::mutex;
  using timer = basic_timer<threads>;
  using timers = basic_timers<threads>;

  static void yield() { std::this_thread::yield(); }
  static void wake_net_poller(timers&, std::int64_t) {}
  static void acquire(timer& t);
  static void release(timer& t);
  [[noreturn]] static void bad_timer(const char* operation, const timer& t, timer_state s) {
    abort_on_bad_timer(operation, &t, s, t.when);
  }
};

struct node : threads::timer {
  std::atomic<int> references{1};
  std::atomic<std::int64_t> armed{0};
  std::atomic<std::int64_t> fired{0};
  std::atomic<std::int64_t> stopped{0};
  std::atomic<std::int64_t> replaced{0};

  node() { ++alive; }
  node(const node&) = delete;
  node& operator=(const node&) = delete;
  ~node() { --alive; }
  inline static std::atomic<int> alive{0};
};

void threads::acquire(timer& t) {
  static_cast<node&>(t).references.fetch_add(1, std::memory_order_relaxed);
}
void threads::release(timer& t) {
  auto& n = static_cast<node&>(t);
  if (n.references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete &n;
}

/// The time at which a timer is due is its seq as well: f knows whether it is called too early.
std::atomic<int> early{0};
void fire(threads::timer& t, std::uint64_t seq, std::int64_t now) noexcept {
  if (static_cast<std::int64_t>(seq) > now) ++early;
  static_cast<node&>(t).fired.fetch_add(1, std::memory_order_relaxed);
}

constexpr std::size_t processors = 3;

class world {
 public:
  world() {
    for (std::size_t i = 0; i < 24; ++i) shared_.push_back(new node);
  }
  ~world() {
    for (node* n : shared_) threads::release(*n);
  }
  world(const world&) = delete;
  world& operator=(const world&) = delete;

  /// A processor: runs its own timers, and sometimes another's; sometimes it moves all of its
  /// timers.
  void process(std::size_t me, unsigned seed) {
    std::minstd_rand random(seed);
    while (!quit_.load()) {
      const std::int64_t now = clock_.load();
      check(heaps_[me], now, true);
      const std::size_t other = random() % processors;
      if (random() % 4 == 0) check(heaps_[other], now, false);
      if (random() % 16 == 0 && other != me) {
        std::scoped_lock both(heaps_[std::min(me, other)].lock, heaps_[std::max(me, other)].lock);
        move_timers(heaps_[other], heaps_[me]);
      }
      std::this_thread::yield();
    }
  }

  /// A user: stops and resets timers that others stop and reset as well, and starts some whose
  /// handle it drops.
  void use(int operations, unsigned seed) {
    std::minstd_rand random(seed);
    for (int i = 0; i < operations; ++i) {
      node& n = *shared_[random() % shared_.size()];
      threads::timers& own = heaps_[random() % processors];
      const std::int64_t when = clock_.fetch_add(1) + static_cast<std::int64_t>(random() % 64);
      // There may be more threads than cores: no thread must keep one for long.
      if (i % 4 == 0) std::this_thread::yield();
      switch (random() % 8) {
        case 0:
        case 1:
        case 2:
          if (del_timer(n)) n.stopped.fetch_add(1);
          break;
        case 3:
          forget(own, when, random() % 2 == 0);
          break;
        default:
          n.armed.fetch_add(1);
          if (mod_timer(own, n, when, 0, &fire, static_cast<std::uint64_t>(when))) {
            n.replaced.fetch_add(1);
          }
      }
    }
  }

  void quit() { quit_ = true; }

  /// After all threads have ended: runs what is left, and compares.
  void settle() {
    const std::int64_t end = clock_.load() + 1000;
    for (threads::timers& ts : heaps_) {
      check(ts, end, true);
      EXPECT_TRUE(ts.heap.empty());
      EXPECT_EQ(ts.deleted_timers.load(), 0);
      EXPECT_EQ(ts.num_timers.load(), 0U);
      EXPECT_EQ(next_when(ts), 0);
    }
    std::int64_t armed = 0;
    std::int64_t fired = 0;
    for (const node* n : shared_) {
      EXPECT_EQ(n->armed, n->fired + n->stopped + n->replaced);
      EXPECT_EQ(n->references, 1);
      armed += n->armed;
      fired += n->fired;
    }
    EXPECT_GT(fired, 0);
    std::printf("[ stress   ] %lld armings, %lld fired, by the time of %lld\n",
                static_cast<long long>(armed), static_cast<long long>(fired),
                static_cast<long long>(clock_.load()));
    EXPECT_EQ(early, 0);
    EXPECT_EQ(node::alive, static_cast<int>(shared_.size()));
  }

 private:
  static void check(threads::timers& ts, std::int64_t now, bool own) {
    const std::int64_t next = next_when(ts);
    if ((next == 0 || now < next) && !(own && should_clear_deleted(ts))) return;
    std::lock_guard guard(ts.lock);
    adjust_timers(ts, now);
    while (run_timer(ts, now) == 0) {
    }
    if (own && should_clear_deleted(ts)) clear_deleted_timers(ts);
  }

  /// A timer whose handle is destroyed with the timer on the heap; a ticker is stopped first.
  static void forget(threads::timers& own, std::int64_t when, bool periodic) {
    auto* n = new node;
    n->when = when;
    n->period = periodic ? 7 : 0;
    n->f = &fire;
    n->seq = static_cast<std::uint64_t>(when);
    add_timer(own, *n);
    if (periodic) {
      reset_timer(own, *n, when + 3);
      del_timer(*n);
    }
    threads::release(*n);
  }

  std::vector<node*> shared_;
  threads::timers heaps_[processors];
  std::atomic<std::int64_t> clock_{1};
  std::atomic<bool> quit_{false};
};

TEST(state_machine_stress, every_arming_ends_once_on_real_threads) {
  const int operations = test::scale(400'000, 40'000);
  {
    world w;
    std::vector<std::thread> owners;
    std::vector<std::thread> users;
    for (std::size_t i = 0; i < processors; ++i) {
      owners.emplace_back([&w, i] { w.process(i, static_cast<unsigned>(100 + i)); });
    }
    for (unsigned i = 0; i < 3; ++i) {
      users.emplace_back([&w, i, operations] { w.use(operations, 200 + i); });
    }
    for (std::thread& t : users) t.join();
    w.quit();
    for (std::thread& t : owners) t.join();
    w.settle();
  }
  EXPECT_EQ(node::alive, 0);
}

}  // namespace
}  // namespace verge::detail
