// SPDX-License-Identifier: Apache-2.0

// Many threads, tasks and callbacks start, stop, reset, detach and destroy the same timers while
// the number of processors changes. Afterwards every timer is checked:
//
//  - Every arming ended in exactly one way: it fired, or a stop or a reset that returned true
//    revoked it. None is lost and none fires twice.
//  - No firing is early. To which arming of a shared timer a firing belongs is unknown, but at the
//    k-th firing at least k of all the deadlines must have passed.
//  - No callback runs once the handle's destructor has returned.
//
// The work is done in rounds, each with its own timers and runtime, for VERGE_STRESS_SECONDS
// seconds on each engine (half a second if it is not set).

#include <gtest/gtest.h>
#include <verge/select.h>
#include <verge/task.h>
#include <verge/time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include <engine/clockwork.h>
#include <support/as_default.h>
#include <support/engines.h>
#include <support/patience.h>

namespace verge::test {
namespace {

nanoseconds time_for_each_engine() {
  const char* set = std::getenv("VERGE_STRESS_SECONDS");
  if (set == nullptr) return 500ms;
  char* end = nullptr;
  const double seconds = std::strtod(set, &end);
  if (end == set || *end != '\0' || !(seconds >= 0 && seconds <= 1e6)) {
    std::fprintf(stderr,
                 "VERGE_STRESS_SECONDS is '%s'; set it to a number of seconds, or unset it\n", set);
    std::exit(2);
  }
  return nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

TEST(stress_seconds, that_are_not_a_number_end_the_program_with_a_message) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (const char* wrong : {"abc", "", "10s", "-1", "nan", "inf"}) {
    EXPECT_EXIT(
        {
          ::setenv("VERGE_STRESS_SECONDS", wrong, 1);
          time_for_each_engine();
        },
        testing::ExitedWithCode(2), "set it to a number of seconds")
        << wrong;
  }
}

/// The operations on one timer, and its firings.
class account {
 public:
  /// Before the call that arms it: the deadline is no earlier than this.
  void about_to_arm(time_point earliest_deadline) {
    std::lock_guard held(lock_);
    deadlines_.push_back(earliest_deadline);
  }
  void took_back(bool was_pending) { taken_back_ += was_pending; }
  void called(time_point at) {
    std::lock_guard held(lock_);
    EXPECT_FALSE(closed_) << "a callback ran after the handle was destroyed";
    firings_.push_back(at);
  }
  /// A receiver may have got the time before the handle was destroyed, and report it after.
  void received(time_point at) {
    std::lock_guard held(lock_);
    firings_.push_back(at);
  }
  /// The handle is destroyed: nothing may happen any more.
  void close() {
    std::lock_guard held(lock_);
    closed_ = true;
  }

  bool balanced() {
    std::lock_guard held(lock_);
    return closed_ || firings_.size() + taken_back_ == deadlines_.size();
  }
  void audit() {
    std::lock_guard held(lock_);
    if (closed_) {
      // What was pending, or had fired but not begun, was discarded with the handle.
      EXPECT_LE(firings_.size() + taken_back_, deadlines_.size());
    } else {
      EXPECT_EQ(firings_.size() + taken_back_, deadlines_.size())
          << firings_.size() << " fired, " << taken_back_ << " taken back, " << deadlines_.size()
          << " armed";
    }
    std::sort(deadlines_.begin(), deadlines_.end());
    std::sort(firings_.begin(), firings_.end());
    for (std::size_t k = 0; k < std::min(firings_.size(), deadlines_.size()); ++k) {
      EXPECT_GE(firings_[k], deadlines_[k]) << "firing " << k << " is early";
    }
  }

 private:
  std::mutex lock_;
  std::vector<time_point> deadlines_;
  std::vector<time_point> firings_;
  bool closed_{false};
  std::atomic<std::size_t> taken_back_{0};
};

/// A shared timer. The lock guards the handle's lifetime: any number of threads may stop and reset
/// it at once, one may replace it.
struct shared_timer {
  std::shared_mutex life;
  verge::timer handle;
  std::shared_ptr<account> books;
  bool has_channel{false};
};

/// One round: its timers, and the threads and tasks that use them.
class round {
 public:
  round(const engine_traits& engine, unsigned seed)
      : engine_(engine), seed_(seed), rt_({.processors = 2, .engine = engine.engine}) {}

  void run(nanoseconds length) {
    as_default here(rt_);
    for (auto& t : timers_) {
      std::lock_guard alone(t.life);
      replace(t);
    }
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; ++i) threads.emplace_back([this, i] { thread(i); });
    threads.emplace_back([this] { resize(); });
    std::vector<join_handle<>> tasks;
    for (unsigned i = 0; i < 4; ++i) tasks.push_back(rt_.spawn([this, i] { return work(i); }));
    std::this_thread::sleep_for(length);
    {
      std::lock_guard closing(business_);
      over_ = true;
    }
    for (auto& t : threads) t.join();
    for (auto& t : tasks) t.join();
    close_books();
  }

 private:
  using generator = std::minstd_rand;

  void thread(unsigned i) {
    as_default here(rt_);
    generator random(seed_ * 100 + i);
    while (!over_) {
      one_step(random, true);
      if (random() % 64 == 0) std::this_thread::yield();
    }
  }
  task<> work(unsigned i) {
    generator random(seed_ * 100 + 50 + i);
    while (!over_) {
      one_step(random, true);
      switch (random() % 16) {
        case 0:
          co_await verge::yield();
          break;
        case 1:
          co_await verge::sleep((random() % 100) * 1us);
          break;
        default:
          break;
      }
    }
  }
  void resize() {
    generator random(seed_);
    while (!over_) {
      rt_.set_processors(1 + random() % 4);
      std::this_thread::sleep_for(1ms);
    }
  }

  /// A callback must not wait for a lock: the holder may be about to destroy its timer.
  void one_step(generator& random, bool may_replace) {
    shared_timer& t = timers_[random() % timers_.size()];
    if (may_replace && random() % 32 == 0) {
      std::unique_lock alone(t.life, std::try_to_lock);
      if (alone) replace(t, random() % 4 == 0);
      return;
    }
    std::shared_lock together(t.life, std::try_to_lock);
    if (!together || !t.handle) return;
    if (random() % 3 == 0) return t.books->took_back(t.handle.stop());
    const nanoseconds d = some_delay(random);
    const auto now = clock::now();
    if (random() % 4 == 0) {
      const auto when = now + d;
      // A time in the past is due at once: what is received is not earlier than that.
      t.books->about_to_arm(std::max(when, now));
      t.books->took_back(t.handle.reset_at(when));
    } else {
      t.books->about_to_arm(now + std::max(d, 0ns));
      t.books->took_back(t.handle.reset(d));
    }
  }

  nanoseconds some_delay(generator& random) const {
    switch (random() % 8) {
      case 0:
        return 0ns;
      case 1:
        return -1s;
      case 2:
      case 3:
        return (random() % 1000) * 1us;
      case 4:
        return engine_.span == 0ns ? nanoseconds(1h) : engine_.span / 2;
      default:
        return nanoseconds(random() % 100'000);
    }
  }

  /// Destroys or detaches the timer, and replaces it.
  void replace(shared_timer& t, bool detach = false) {
    if (t.books != nullptr) {
      if (detach && !t.has_channel) {
        // No thread can stop it any more, and it must not delay the test.
        t.books->about_to_arm(clock::now() + 1ms);
        t.books->took_back(t.handle.reset(1ms));
        t.handle.detach();
      } else {
        t.handle = verge::timer();
        t.books->close();
      }
    }
    auto books = std::make_shared<account>();
    books->about_to_arm(clock::now() + 100us);
    t.has_channel = made_.fetch_add(1) % 4 == 0;
    if (t.has_channel) {
      t.handle = verge::timer(100us);
      rt_.spawn(receive(t.handle.c(), books)).detach();
    } else {
      t.handle = after_func(100us, [this, books] {
        books->called(clock::now());
        generator random(++called_);
        std::shared_lock open(business_);
        for (int i = 0; i < 3 && !over_; ++i) one_step(random, false);
      });
    }
    t.books = books;
    std::lock_guard held(all_books_lock_);
    all_books_.push_back(std::move(books));
  }

  task<> receive(receiver<time_point> c, std::shared_ptr<account> books) {
    ++receivers_;
    for (bool more = true; more;) {
      co_await verge::select(
          verge::recv(c, [&](std::optional<time_point> at) { books->received(*at); }),
          verge::recv(no_more_, [&] { more = false; }));
    }
    --receivers_;
  }

  /// Stops what is left, waits until everything that has fired has run, and checks every timer.
  void close_books() {
    for (auto& t : timers_) t.books->took_back(t.handle.stop());
    for (const auto& books : all_books_) {
      EXPECT_TRUE(eventually([&] { return books->balanced(); })) << "something never fired";
    }
    no_more_.close();
    EXPECT_TRUE(eventually([&] { return receivers_ == 0; }));
    EXPECT_EQ(detail::scheduler_of(rt_).timers().its_engine().verify(), "");
    for (auto& t : timers_) t.handle = verge::timer();
    for (const auto& books : all_books_) books->audit();
  }

  const engine_traits engine_;
  const unsigned seed_;
  std::array<shared_timer, 32> timers_;
  std::mutex all_books_lock_;
  std::vector<std::shared_ptr<account>> all_books_;
  std::atomic<unsigned> made_{0};
  std::atomic<unsigned> called_{0};
  std::atomic<int> receivers_{0};
  std::atomic<bool> over_{false};
  /// Held shared by callbacks that use timers, so that none is in progress at the end.
  std::shared_mutex business_;
  chan<bool> no_more_;
  runtime rt_;
};

class stress : public testing::TestWithParam<engine_traits> {};

TEST_P(stress, every_arming_fires_or_is_revoked_whatever_many_threads_do) {
  const auto end = clock::now() + time_for_each_engine();
  for (unsigned seed = 1; seed == 1 || (clock::now() < end && !HasFailure()); ++seed) {
    SCOPED_TRACE("round " + std::to_string(seed));
    std::make_unique<round>(GetParam(), seed)->run(150ms);
  }
}

/// Tickers: shared as well, but how often they tick depends on the order of resets. Required: none
/// ticks after it was destroyed, and one that is not touched keeps ticking.
TEST_P(stress, tickers_tick_until_they_are_destroyed_whatever_many_threads_do) {
  const auto end = clock::now() + time_for_each_engine() / 4;
  for (unsigned seed = 1; seed == 1 || (clock::now() < end && !HasFailure()); ++seed) {
    runtime rt({.processors = 3, .engine = GetParam().engine});
    as_default here(rt);
    struct shared_ticker {
      std::shared_mutex life;
      verge::ticker handle;
      std::shared_ptr<std::atomic<bool>> gone;
      std::shared_ptr<std::atomic<int>> ticks;
    };
    std::array<shared_ticker, 8> tickers;
    const auto replace = [](shared_ticker& t, nanoseconds period) {
      t.handle = verge::ticker();
      if (t.gone != nullptr) *t.gone = true;
      t.gone = std::make_shared<std::atomic<bool>>(false);
      t.ticks = std::make_shared<std::atomic<int>>(0);
      t.handle = every(period, [gone = t.gone, ticks = t.ticks] {
        EXPECT_FALSE(*gone) << "a tick after the handle was destroyed";
        ++*ticks;
      });
    };
    for (auto& t : tickers) replace(t, 1ms);
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        as_default there(rt);
        std::minstd_rand random(seed * 10 + i);
        while (!over) {
          shared_ticker& t = tickers[random() % tickers.size()];
          if (random() % 16 == 0) {
            std::unique_lock alone(t.life);
            replace(t, nanoseconds(10'000 + random() % 1'000'000));
            continue;
          }
          std::shared_lock together(t.life);
          if (random() % 4 == 0) {
            t.handle.stop();
          } else {
            t.handle.reset(nanoseconds(10'000 + random() % 1'000'000));
          }
          together.unlock();
          if (random() % 8 == 0) std::this_thread::sleep_for(20us);
          if (i == 0) rt.set_processors(1 + random() % 4);
        }
      });
    }
    std::this_thread::sleep_for(100ms);
    over = true;
    for (auto& t : threads) t.join();
    for (auto& t : tickers) {
      t.handle.reset(1ms);
      const int before = *t.ticks;
      EXPECT_TRUE(eventually([&] { return *t.ticks > before + 2; })) << "it has stopped ticking";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(engines, stress, testing::ValuesIn(engines),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace verge::test
