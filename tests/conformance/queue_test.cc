// SPDX-License-Identifier: Apache-2.0

// Line 35: a random walk, with the engine's queues checked after every step.

#include <conformance/conformance.h>

#include <random>
#include <vector>

#include <engine/clockwork.h>

namespace verge::test {
namespace {

/// A timer of the walk, and what must happen to it.
struct walked {
  verge::timer handle;
  time_point due{};
  bool pending{false};
  /// Firings in progress when it was stopped or reset: their callbacks are still to come.
  int under_way{0};
};

/// One walk: timers in simulated time, and a model of them that is compared with what happens.
class walk {
 public:
  walk(simulation& sim, std::uint64_t seed, std::size_t timers, nanoseconds farthest,
       nanoseconds tick)
      : sim_(sim), random_(seed), all_(timers), farthest_(farthest), tick_(tick) {}

  void step() {
    walked& w = all_[random_() % all_.size()];
    switch (random_() % 8) {
      case 0:
      case 1:
        return start(w);
      case 2:
        if (w.handle) expect(w, w.handle.stop());
        w.pending = false;
        return;
      case 3:
      case 4:
      case 5:
        if (w.handle) reset(w);
        return;
      case 6:
        w.handle = verge::timer();
        w.pending = false;
        w.under_way = 0;
        return;
      default:
        return pass(some_time() / 20);
    }
  }
  /// Lets everything pending fire.
  void finish() {
    pass(farthest_);
    pass(1s);
    for (const walked& w : all_) {
      EXPECT_FALSE(w.pending) << "it has not fired";
      EXPECT_EQ(w.under_way, 0) << "its callback has not run";
    }
  }

 private:
  nanoseconds some_time() {
    // Of all sizes: as many under a microsecond as over a minute.
    const auto bits = random_() % 48;
    return std::min(nanoseconds(random_() & ((std::uint64_t{1} << bits) - 1)), farthest_);
  }
  void start(walked& w) {
    const auto d = some_time();
    w.handle = after_func(d, [this, &w] { fired(w); });
    w.under_way = 0;
    w.pending = true;
    w.due = sim_.now() + d;
  }
  void reset(walked& w) {
    const auto d = some_time();
    expect(w, w.handle.reset(d));
    w.pending = true;
    w.due = sim_.now() + d;
  }
  /// At the instant at which it fires, the callback may not have run yet.
  void expect(walked& w, bool was_pending) {
    if (w.pending && !was_pending && w.due <= sim_.now()) {
      ++w.under_way;
    } else {
      EXPECT_EQ(was_pending, w.pending);
    }
  }
  void fired(walked& w) {
    if (w.under_way > 0) {
      --w.under_way;
      return;
    }
    EXPECT_TRUE(w.pending) << "it was stopped, or has fired before";
    EXPECT_GE(sim_.now(), w.due);
    EXPECT_LE(sim_.now(), w.due + tick_);
    w.pending = false;
  }
  void pass(nanoseconds d) {
    sim_.run_for(d);
    for (walked& w : all_) {
      EXPECT_FALSE(w.pending && w.due + tick_ < sim_.now())
          << "due " << (sim_.now() - w.due).count() << " ns ago, and has not fired";
    }
  }

  simulation& sim_;
  std::mt19937_64 random_;
  std::vector<walked> all_;
  nanoseconds farthest_;
  nanoseconds tick_;
};

TEST_P(conformance, L35_the_queues_are_in_order_after_every_step_of_a_random_walk) {
  // Checking every bucket of a wheel takes a while.
  const int steps = takes_any_delay() ? scale(20'000, 2'000) : scale(2'000, 200);
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    simulation sim(simulated(seed));
    auto& engine = detail::scheduler_of(sim).timers().its_engine();
    walk w(sim, seed, seed * 50, up_to(24h), tick());
    for (int i = 0; i < steps; ++i) {
      w.step();
      ASSERT_EQ(engine.verify(), "") << "after step " << i << " with seed " << seed;
      ASSERT_FALSE(HasFailure()) << "in step " << i << " with seed " << seed;
    }
    w.finish();
    EXPECT_EQ(engine.verify(), "");
  }
}

/// For what is due at the instant of a step, the seed decides whether the callback has run.
TEST_P(conformance, L35_the_queues_are_in_order_after_a_storm_of_threads_has_passed) {
  runtime rt(live());
  auto& engine = detail::scheduler_of(rt).timers().its_engine();
  {
    as_default here(rt);
    std::vector<verge::timer> all;
    for (int i = 0; i < 500; ++i) all.push_back(after_func(minutes(7), [] {}));
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        as_default there(rt);
        std::mt19937 random(i);
        for (int n = 0; n < scale(50'000, 5'000); ++n) {
          verge::timer& t = all[random() % all.size()];
          random() % 3 == 0 ? t.stop() : t.reset(minutes(1) + nanoseconds(random()));
        }
      });
    }
    for (auto& t : threads) t.join();
    EXPECT_EQ(engine.verify(), "");
  }
  EXPECT_EQ(engine.verify(), "");
}

}  // namespace
}  // namespace verge::test
