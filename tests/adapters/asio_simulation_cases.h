// SPDX-License-Identifier: Apache-2.0
// Asio programs in simulated time, for either home of Asio: see asio_cases.h.

/// A server's time-outs in simulated time: connections that are active at random and time out after
/// ten idle seconds. Returns a trace of what happened.
inline std::string a_day_of_time_outs(std::uint64_t seed) {
  verge::simulation sim(seed);
  io_context io;
  std::ostringstream trace;
  struct connection {
    timer idle;
    timer message;
    std::mt19937_64 random;
  };
  std::deque<connection> all;
  const auto start = sim.now();
  const auto a_day = scale(24h, 2h);
  int time_outs = 0;
  std::function<void(int)> watch = [&](int i) {
    auto& c = all[static_cast<std::size_t>(i)];
    c.idle.expires_after(10s);
    c.idle.async_wait([&, i](error_code e) {
      if (e) return;
      trace << (verge::clock::now() - start) / 1ms << ' ' << i << '\n';
      ++time_outs;
    });
  };
  std::function<void(int)> talk = [&](int i) {
    auto& c = all[static_cast<std::size_t>(i)];
    c.message.expires_after(std::chrono::milliseconds(100 * (c.random() % 150)));
    c.message.async_wait([&, i](error_code) {
      watch(i);
      if (verge::clock::now() - start < a_day) talk(i);
    });
  };
  for (unsigned i = 0; i < 10; ++i) {
    all.push_back({timer(io), timer(io), std::mt19937_64(i)});
    talk(static_cast<int>(i));
  }
  verge::run_simulated(sim, io);
  EXPECT_GE(sim.now() - start, a_day);
  EXPECT_GT(time_outs, a_day / 10min);
  return trace.str();
}

TEST(asio_simulation, runs_a_day_of_time_outs_and_the_same_for_each_seed) {
  const auto before = std::chrono::steady_clock::now();
  const std::string first = a_day_of_time_outs(1);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - before;
  RecordProperty("seconds_for_a_day", std::to_string(took.count()));
  EXPECT_EQ(a_day_of_time_outs(1), first);
  // Another seed gives another order of what is due at the same time.
  EXPECT_NE(a_day_of_time_outs(2), first);
}

TEST(asio_simulation, ends_after_the_time_it_is_given) {
  verge::simulation sim;
  io_context io;
  int ticks = 0;
  timer t(io);
  std::function<void(error_code)> tick = [&](error_code) {
    ++ticks;
    t.expires_at(t.expiry() + 1h);
    t.async_wait(tick);
  };
  t.expires_after(1h);
  t.async_wait(tick);
  const auto start = sim.now();
  verge::run_simulated(sim, io, 24h);
  EXPECT_EQ(ticks, 24);
  EXPECT_EQ(sim.now(), start + 24h);
  t.cancel();
}

TEST(asio_simulation, reports_a_wait_that_no_time_ends) {
  verge::simulation sim;
  io_context io;
  auto work = net::make_work_guard(io);
  EXPECT_THROW(verge::run_simulated(sim, io), verge::deadlock);
}
