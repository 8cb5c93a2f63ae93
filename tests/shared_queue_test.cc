// SPDX-License-Identifier: Apache-2.0

// shared_timer_queue and loop_timers: one thread runs the queue, others use it.

#include <gtest/gtest.h>
#include <poll.h>
#include <support/patience.h>
#include <support/scale.h>
#include <sys/epoll.h>
#include <verge/loop.h>
#include <verge/shared_queue.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using verge::clock;
using verge::test::eventually;
using verge::test::scale;
using queue = verge::shared_timer_queue;

clock::time_point at(std::chrono::nanoseconds t) { return clock::time_point(t); }

TEST(timer_queue, tells_whether_a_timer_is_now_the_first) {
  verge::timer_queue q;
  const auto when = [](int s) { return verge::timer_queue::time_point(std::chrono::seconds(s)); };
  EXPECT_TRUE(q.start(when(10), [] {}).first);
  const auto later = q.start(when(20), [] {});
  EXPECT_FALSE(later.first);
  EXPECT_TRUE(q.start(when(5), [] {}).first);
  // Memory and entry of a stopped timer are reused: the new timer is the first all the same, since
  // a loop that found the queue empty waits without limit.
  verge::timer_queue reused;
  reused.stop(reused.start(when(10), [] {}));
  EXPECT_FALSE(reused.next());
  EXPECT_TRUE(reused.start(when(30), [] {}).first);
}

TEST(timer_queue, gives_back_the_callback_of_a_timer_that_is_taken) {
  verge::timer_queue q;
  int called = 0;
  const auto t = q.start(verge::timer_queue::time_point(10s), [&] { ++called; });
  auto f = q.take(t);
  ASSERT_TRUE(f);
  (*f)();
  EXPECT_EQ(called, 1);
  EXPECT_FALSE(q.take(t));
  EXPECT_FALSE(q.pop(verge::timer_queue::time_point(1h)));
}

TEST(shared_timer_queue, wakes_the_loop_only_for_a_timer_before_the_planned_time) {
  std::vector<clock::time_point> woken;
  queue q([&](clock::time_point when) { woken.push_back(when); });
  q.start(at(30s), [] {});
  EXPECT_TRUE(woken.empty()) << "the loop has not said that it sleeps";
  EXPECT_EQ(q.sleep_until(), at(30s));
  EXPECT_FALSE(q.start(at(40s), [] {}).first);
  EXPECT_TRUE(woken.empty());
  const auto t = q.start(at(20s), [] {});
  EXPECT_TRUE(t.first);
  EXPECT_FALSE(q.start(at(25s), [] {}).first);
  EXPECT_TRUE(q.reset(t, at(10s)));
  EXPECT_EQ(woken, (std::vector{at(20s), at(10s)}));
  q.run(at(1s));
  q.start(at(2s), [] {});
  EXPECT_EQ(woken.size(), 2u) << "the loop is awake";
  EXPECT_EQ(q.sleep_until(), at(2s));
}

TEST(shared_timer_queue, changes_the_time_of_no_timer_that_is_not_pending) {
  int woken = 0;
  int called = 0;
  queue q([&](clock::time_point) { ++woken; });
  const auto stopped = q.start(at(2s), [&] { ++called; });
  const auto called_at_1 = q.start(at(1s), [&] { ++called; });
  EXPECT_TRUE(q.stop(stopped));
  EXPECT_EQ(q.run(at(1s)), 1U);
  EXPECT_FALSE(q.sleep_until());
  for (const auto& t : {stopped, called_at_1}) {
    EXPECT_FALSE(q.pending(t));
    EXPECT_FALSE(q.reset(t, at(5s)));
    EXPECT_FALSE(q.stop(t));
  }
  EXPECT_EQ(woken, 0) << "for nothing";
  EXPECT_TRUE(q.empty());
  EXPECT_EQ(q.run(at(1h)), 0U);
  EXPECT_EQ(called, 1);
}

TEST(shared_timer_queue, wakes_a_loop_that_found_the_queue_empty) {
  int woken = 0;
  queue q([&](clock::time_point) { ++woken; });
  EXPECT_FALSE(q.sleep_until());
  q.start(at(30s), [] {});
  EXPECT_EQ(woken, 1);
}

// Callbacks and their destructors run without the lock: these would deadlock.
TEST(shared_timer_queue, may_be_used_by_callbacks_and_by_their_destructors) {
  queue q([](clock::time_point) {});
  int called = 0;
  std::shared_ptr<void> last(nullptr, [&](void*) { q.start(at(2s), [&] { ++called; }); });
  const auto t = q.start(at(1s), [keep = std::move(last)] {});
  EXPECT_TRUE(q.stop(t));
  q.start(at(1s), [&] { q.start(at(1s), [&] { ++called; }); });
  EXPECT_EQ(q.run(at(1h)), 3u);
  EXPECT_EQ(called, 2);
}

TEST(shared_timer_queue, lets_a_callback_stop_what_is_due_after_it) {
  queue q([](clock::time_point) {});
  bool stopped = false;
  queue::id second;
  q.start(at(1s), [&] { stopped = q.stop(second); });
  second = q.start(at(2s), [] { FAIL() << "it was stopped"; });
  EXPECT_EQ(q.run(at(1h)), 1u);
  EXPECT_TRUE(stopped);
}

TEST(loop_timers, are_due_no_sooner_than_their_delay_from_now) {
  verge::loop_timers timers;
  const auto begin = clock::now();
  const auto which = timers.start(1h, [] {});
  EXPECT_GE(timers.next(), begin + 1h);
  EXPECT_LE(timers.next(), clock::now() + 1h + 1s);
  const auto later = clock::now();
  EXPECT_TRUE(timers.reset(which, 30min));
  EXPECT_GE(timers.next(), later + 30min);
  EXPECT_LE(timers.next(), clock::now() + 30min + 1s);
  EXPECT_TRUE(timers.reset(which, -1h));
  EXPECT_GE(timers.next(), later) << "as soon as may be, and not an hour ago";
}

TEST(loop_timers, are_readable_when_due_and_until_run) {
  verge::loop_timers timers;
  const auto readable = [&](int ms) {
    pollfd watched{.fd = timers.fd(), .events = POLLIN, .revents = 0};
    return ::poll(&watched, 1, ms) == 1;
  };
  EXPECT_FALSE(readable(0));
  int called = 0;
  timers.start(1h, [&] { ++called; });
  EXPECT_FALSE(readable(0));
  timers.start(-1h, [&] { ++called; });
  timers.start(std::chrono::hours::min(), [&] { ++called; });
  timers.start(std::chrono::hours::max(), [&] { ++called; });
  timers.start(clock::time_point(-1s), [&] { ++called; });
  timers.start(clock::time_point::max(), [&] { ++called; });
  EXPECT_TRUE(readable(-1));
  EXPECT_EQ(timers.run(1), 1u);
  EXPECT_TRUE(readable(-1)) << "two more are due";
  EXPECT_EQ(timers.run(), 2u);
  EXPECT_FALSE(readable(0));
  EXPECT_EQ(called, 3);
  EXPECT_EQ(timers.size(), 3u);
}

TEST(loop_timers, stay_readable_if_a_callback_throws) {
  verge::loop_timers timers;
  int called = 0;
  timers.start(clock::time_point(1s), [] { throw std::runtime_error("expected"); });
  timers.start(clock::time_point(2s), [&] { ++called; });
  EXPECT_THROW(timers.run(), std::runtime_error);
  pollfd watched{.fd = timers.fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&watched, 1, -1), 1);
  EXPECT_EQ(timers.run(), 1u);
  EXPECT_EQ(called, 1);
}

/// Runs the timers until `done`, waiting without a time-out: a lost wake-up hangs.
void run_with_epoll(verge::loop_timers& timers, const std::atomic<bool>& done) {
  const int loop = ::epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN, .data = {.fd = timers.fd()}};
  ASSERT_EQ(::epoll_ctl(loop, EPOLL_CTL_ADD, timers.fd(), &event), 0);
  while (!done.load()) {
    const int n = ::epoll_wait(loop, &event, 1, -1);
    ASSERT_TRUE(n >= 0 || errno == EINTR);
    if (n > 0) timers.run();
  }
  ::close(loop);
}

TEST(loop_timers, wake_a_loop_that_waits_for_later_timers_or_for_none) {
  for (const bool another : {false, true}) {
    verge::loop_timers timers;
    if (another) timers.start(1h, [] {});
    std::atomic<bool> done = false;
    std::thread loop([&] { run_with_epoll(timers, done); });
    for (int i = 0; i < scale(2000, 300); ++i) {
      std::atomic<bool> called = false;
      timers.start(std::chrono::microseconds(i % 200), [&] {
        called = true;
        called.notify_one();
      });
      called.wait(false);
    }
    timers.start(0s, [&] { done = true; });
    loop.join();
  }
}

/// One timer of the stress, written by its starter and by its callback.
struct record {
  std::atomic<std::int64_t> due{0};  ///< the earliest time at which it may be called
  std::atomic<int> called{0};
  std::atomic<bool> stopped{false};  ///< a stop() has returned true
};

// Each of three threads starts, resets and stops its timers while a fourth runs them. At the end
// each has been called once or stopped, never both, never early.
TEST(loop_timers, are_called_once_or_stopped_never_both_with_many_threads) {
  const int per_thread = scale(40'000, 6'000);
  constexpr int threads = 3;
  verge::loop_timers timers;
  std::atomic<bool> done = false;
  std::atomic<int> early = 0;
  const auto each = static_cast<std::size_t>(per_thread);
  std::vector<record> all(each * threads);
  std::thread loop([&] { run_with_epoll(timers, done); });
  std::atomic<int> settled = 0;
  std::vector<std::thread> users;
  for (int user = 0; user < threads; ++user) {
    users.emplace_back([&, user] {
      std::mt19937_64 random(static_cast<std::uint64_t>(user) + 1);
      std::vector<std::pair<record*, queue::id>> mine;
      for (int i = 0; i < per_thread; ++i) {
        record& r = all[static_cast<std::size_t>(user) * each + static_cast<std::size_t>(i)];
        const auto when = clock::now() + std::chrono::nanoseconds(random() % 3'000'000);
        r.due = when.time_since_epoch().count();
        const auto t = timers.start(when, [&r, &early, &settled] {
          if (clock::now().time_since_epoch().count() < r.due.load()) ++early;
          ++r.called;
          ++settled;
        });
        mine.emplace_back(&r, t);
        auto& [other, id] = mine[random() % mine.size()];
        if (random() % 4 == 0) {
          // Earlier than its time, at times: `due` is lowered first.
          const auto next = clock::now() + std::chrono::nanoseconds(random() % 2'000'000);
          const auto before = other->due.load();
          other->due = std::min(before, next.time_since_epoch().count());
          if (timers.reset(id, next)) other->due = next.time_since_epoch().count();
        } else if (random() % 3 == 0 && timers.stop(id)) {
          other->stopped = true;
          ++settled;
        }
      }
    });
  }
  for (auto& u : users) u.join();
  EXPECT_TRUE(eventually([&] { return settled.load() == per_thread * threads; }))
      << settled.load() << " of " << per_thread * threads;
  timers.start(0s, [&] { done = true; });
  loop.join();
  EXPECT_EQ(early, 0);
  for (const auto& r : all) ASSERT_EQ(r.called.load() + (r.stopped.load() ? 1 : 0), 1);
  EXPECT_TRUE(timers.empty());
}

TEST(loop_timers, a_hundred_thousand_from_four_threads_are_never_early) {
  const int count = scale(100'000, 20'000);
  verge::loop_timers timers;
  std::atomic<bool> done = false;
  std::atomic<int> called = 0;
  std::atomic<int> early = 0;
  std::thread loop([&] { run_with_epoll(timers, done); });
  std::vector<std::thread> starters;
  for (int s = 0; s < 4; ++s) {
    starters.emplace_back([&, s] {
      for (int i = s; i < count; i += 4) {
        const auto when = clock::now() + std::chrono::microseconds(i % 50'000);
        timers.start(when, [&, when] {
          if (clock::now() < when) ++early;
          ++called;
        });
      }
    });
  }
  for (auto& s : starters) s.join();
  EXPECT_TRUE(eventually([&] { return called.load() == count; })) << called.load();
  timers.start(0s, [&] { done = true; });
  loop.join();
  EXPECT_EQ(early, 0);
}

}  // namespace
