// SPDX-License-Identifier: Apache-2.0

// short_lock among many threads that sleep for it.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <thread>
#include <vector>

#include <base/turn_lock.h>
#include <support/patience.h>
#include <support/scale.h>
#include <verge/detail/lock.h>

namespace verge::test {
namespace {

/// The holder lets others run, so that all of them find it held and sleep. Each that wakes must
/// leave word that more sleep, or the last release wakes none.
TEST(short_lock, wakes_all_of_many_sleepers) {
  constexpr int threads = 12;
  const int rounds = scale(500, 100);
  detail::short_lock lock;
  int count = 0;
  std::atomic<int> done{0};
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&] {
      for (int n = 0; n < rounds; ++n) {
        const std::lock_guard held(lock);
        ++count;
        std::this_thread::yield();
      }
      ++done;
    });
  }
  if (!eventually([&] { return done == threads; })) {
    std::fprintf(stderr, "%d of %d threads have ended: the others sleep\n", done.load(), threads);
    std::_Exit(1);  // they cannot be joined
  }
  for (auto& t : all) t.join();
  EXPECT_EQ(count, threads * rounds);
}

/// It would not let them in if it did not know of them.
TEST(turn_lock, knows_how_many_wait) {
  detail::turn_lock lock;
  lock.lock();
  EXPECT_EQ(lock.waiting(), 0U);
  std::vector<std::thread> waiting;
  for (int i = 0; i < 3; ++i) {
    waiting.emplace_back([&] { const std::lock_guard held(lock); });
  }
  EXPECT_TRUE(eventually([&] { return lock.waiting() == 3; }));
  lock.unlock();
  for (auto& t : waiting) t.join();
  EXPECT_EQ(lock.waiting(), 0U);
}

/// Under a real-time priority a thread that only spins or yields never lets the other run.
TEST(backoff, sleeps_if_it_takes_long) {
  const auto cpu = [] {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  rusage before{};
  ::getrusage(RUSAGE_THREAD, &before);
  detail::backoff patience;
  const double used = cpu();
  for (int i = 0; i < 1000; ++i) patience.wait();
  rusage after{};
  ::getrusage(RUSAGE_THREAD, &after);
  // Each sleep is a voluntary switch; a yield is not counted as one.
  EXPECT_GT(after.ru_nvcsw - before.ru_nvcsw, 500) << "in " << (cpu() - used) * 1e3 << " ms";
}

}  // namespace
}  // namespace verge::test
