// SPDX-License-Identifier: Apache-2.0
// Many timers and several threads, for either home of Asio: see asio_cases.h.

TEST(asio_timer, a_hundred_thousand_from_other_threads_are_never_early_or_lost) {
  const int count = scale(100'000, 10'000);
  io_context io;
  auto work = net::make_work_guard(io);
  std::atomic<int> called = 0;
  std::atomic<int> early = 0;
  std::vector<std::unique_ptr<timer>> timers(static_cast<std::size_t>(count));
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) threads.emplace_back([&] { io.run(); });
  for (int user = 0; user < 2; ++user) {
    threads.emplace_back([&, user] {
      for (int i = user; i < count; i += 2) {
        auto& t = timers[static_cast<std::size_t>(i)];
        t = std::make_unique<timer>(io, std::chrono::microseconds((i * 7919) % 40'000));
        t->async_wait([&, when = t->expiry()](error_code e) {
          if (e || verge::clock::now() < when) ++early;
          if (++called == count) work.reset();
        });
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(called, count);
  EXPECT_EQ(early, 0);
}

/// One wait of the stress: what its handler saw.
enum class seen : int { nothing, success, aborted };

// Three threads start, cancel, postpone and destroy timers, each of which has one wait at a time,
// while two threads run the handlers. Each call says how many waits it has cancelled, 0 or 1: so
// for each wait it is known whether some call said that it was cancelled, and its handler must have
// seen just that.
TEST(asio_timer, what_cancel_says_is_what_the_handler_sees_from_any_thread) {
  const int rounds = scale(30'000, 4'000);
  constexpr int slots = 8;
  io_context io;
  auto work = net::make_work_guard(io);
  struct record {
    std::atomic<int> outcome{static_cast<int>(seen::nothing)};
    std::atomic<int> cancels{0};
    std::atomic<int> calls{0};
    bool left_to_destructor{false};  // of the timer, which does not say what it has cancelled
  };
  struct slot {
    std::mutex mutex;  // for `current` and for replacing the timer: not held by handlers
    std::unique_ptr<timer> t;
    record* current = nullptr;
  };
  std::vector<slot> all(slots);
  std::vector<record> records(static_cast<std::size_t>(rounds) * 3);
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> users;
  std::vector<std::thread> loops;
  for (int i = 0; i < 2; ++i) loops.emplace_back([&] { io.run(); });
  for (unsigned user = 0; user < 3; ++user) {
    users.emplace_back([&, user] {
      std::mt19937_64 random(user);
      for (int i = 0; i < rounds; ++i) {
        slot& s = all[random() % slots];
        const std::lock_guard held(s.mutex);
        const auto say = [&](std::size_t n) {
          if (s.current != nullptr) s.current->cancels += static_cast<int>(n);
        };
        // The end of the wait before, in one of five ways.
        switch (random() % 5) {
          case 0:
            if (s.t) say(s.t->cancel());
            break;
          case 1:
            if (s.t) say(s.t->expires_after(1us));
            break;
          case 2:
            if (s.t) say(s.t->cancel_one());
            s.t.reset();
            break;
          case 3:
            if (!s.t || s.current == nullptr) break;
            s.current->left_to_destructor = true;
            s.t.reset();
            break;
          default: {
            // Moved to another object, and cancelled there.
            if (!s.t) break;
            timer other(std::move(*s.t));
            say(other.expires_at({}));
            *s.t = std::move(other);
          }
        }
        if (!s.t) s.t = std::make_unique<timer>(io);
        record& r = records[next++];
        s.current = &r;
        s.t->expires_after(std::chrono::nanoseconds(random() % 60'000) - 10us);
        s.t->async_wait([&r](error_code e) {
          ++r.calls;
          r.outcome = static_cast<int>(e ? seen::aborted : seen::success);
        });
        // Now and then the other threads get a chance to run what is due.
        if (random() % 8 == 0) std::this_thread::yield();
      }
    });
  }
  for (auto& u : users) u.join();
  for (auto& s : all)
    if (s.t && s.current != nullptr) s.current->cancels += static_cast<int>(s.t->cancel());
  work.reset();
  for (auto& l : loops) l.join();
  int aborted = 0;
  for (std::size_t i = 0; i < next; ++i) {
    const auto outcome = static_cast<seen>(records[i].outcome.load());
    const int cancels = records[i].cancels;
    ASSERT_EQ(records[i].calls, 1) << "of a handler";
    if (records[i].left_to_destructor) continue;
    ASSERT_EQ(cancels, outcome == seen::aborted ? 1 : 0);
    aborted += cancels;
  }
  EXPECT_GT(aborted, 0);
  EXPECT_LT(aborted, static_cast<int>(next.load()))
      << "no wait ended by itself: nothing was tested";
}

// Threads cancel and postpone one timer at the same time, without any lock, while others add waits
// to it. Then the calls together say how many handlers saw operation_aborted.
TEST(asio_timer, adds_up_when_threads_cancel_the_same_timer_at_once) {
  const int rounds = scale(20'000, 3'000);
  io_context io;
  auto work = net::make_work_guard(io);
  std::atomic<std::size_t> said = 0;
  std::atomic<std::size_t> aborted = 0;
  std::atomic<std::size_t> succeeded = 0;
  timer t(io);
  std::vector<std::thread> users;
  std::vector<std::thread> loops;
  for (int i = 0; i < 2; ++i) loops.emplace_back([&] { io.run(); });
  for (unsigned user = 0; user < 3; ++user) {
    users.emplace_back([&, user] {
      std::mt19937_64 random(user);
      for (int i = 0; i < rounds; ++i) {
        switch (random() % 4) {
          case 0:
            said += t.cancel();
            break;
          case 1:
            said += t.cancel_one();
            break;
          case 2:
            said += t.expires_after(std::chrono::microseconds(random() % 20));
            break;
          default:
            break;
        }
        t.async_wait([&](error_code e) { ++(e ? aborted : succeeded); });
      }
    });
  }
  for (auto& u : users) u.join();
  said += t.cancel();
  work.reset();
  for (auto& l : loops) l.join();
  EXPECT_EQ(said, aborted);
  EXPECT_EQ(aborted + succeeded, static_cast<std::size_t>(rounds) * 3);
}
