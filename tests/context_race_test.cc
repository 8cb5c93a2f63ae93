// SPDX-License-Identifier: Apache-2.0

// Contexts: races of all operations.

#include <gtest/gtest.h>
#include <verge/context.h>
#include <verge/runtime.h>
#include <verge/select.h>
#include <verge/under.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <limits>
#include <random>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include <support/as_default.h>
#include <support/contexts.h>
#include <support/patience.h>
#include <support/scale.h>
#include <support/token.h>

namespace {

using namespace verge;
using namespace std::chrono_literals;
using test::as_default;
using test::eventually;
using test::is_closed;
using test::scale;
using test::token;

const context_key<int> depth;

/// A tree of random shape, whose nodes many threads cancel, while deadlines pass, handles are
/// destroyed, children are added, and others wait.
TEST(context_race, of_all_operations_in_one_tree) {
  runtime rt({.processors = 2});
  const as_default here(rt);
  const context_key<token> key;
  const int rounds = scale(200, 30);
  constexpr unsigned threads = 4;
  for (int round = 0; round < rounds; ++round) {
    std::mt19937 random(static_cast<unsigned>(round));
    std::vector<cancellable> nodes;
    nodes.push_back(with_cancel(with_value(background(), key, token())));
    for (int i = 0; i < 60; ++i) {
      const context& parent = nodes[random() % nodes.size()].ctx;
      switch (random() % 3) {
        case 0:
          nodes.push_back(with_cancel(parent));
          break;
        case 1:
          nodes.push_back(with_timeout(parent, std::chrono::microseconds(random() % 300)));
          break;
        default:
          nodes.push_back(with_cancel(with_value(parent, depth, i)));
      }
    }
    std::atomic<int> called{0};
    std::vector<context_callback> callbacks;
    for (std::size_t i = 0; i < nodes.size(); i += 5)
      callbacks.push_back(after_func(nodes[i].ctx, [&] { ++called; }));
    auto waits =
        rt.spawn([c = nodes.back().ctx]() -> task<> { co_await under(c, verge::sleep(1h)); });

    std::barrier together(threads);
    std::vector<std::jthread> all;
    for (unsigned id = 0; id < threads; ++id) {
      all.emplace_back([&, id, seed = random()] {
        std::mt19937 mine(static_cast<unsigned>(seed));
        together.arrive_and_wait();
        for (int i = 0; i < 40; ++i) {
          const cancellable& n = nodes[mine() % nodes.size()];
          switch (mine() % 6) {
            case 0:
              n.cancel();
              EXPECT_TRUE(n.ctx.err());
              break;
            case 1: {
              auto child = with_timeout(n.ctx, std::chrono::microseconds(mine() % 100));
              if (mine() % 2 == 0) child.cancel.detach();
              break;
            }
            case 2: {
              const bool has_error = static_cast<bool>(n.ctx.err());
              const bool closed = is_closed(n.ctx);
              EXPECT_TRUE(closed || !has_error);
              EXPECT_TRUE(!closed || n.ctx.err());
              break;
            }
            case 3: {
              const auto t = n.ctx.stop_token();
              const auto f = after_func(n.ctx, [] {});
              EXPECT_TRUE(!t.stop_requested() || n.ctx.err());
              break;
            }
            case 4: {
              std::stop_source s;
              auto child = with_stop_token(n.ctx, s.get_token());
              s.request_stop();
              EXPECT_TRUE(child.ctx.err());
              break;
            }
            default:
              if (id == 0 && i == 39) nodes.front().cancel();
          }
        }
      });
    }
    all.clear();
    nodes.front().cancel();
    for (const cancellable& n : nodes) {
      EXPECT_TRUE(n.ctx.err());
      EXPECT_TRUE(is_closed(n.ctx));
    }
    try {
      waits.join();
      ADD_FAILURE() << "it slept for an hour";
    } catch (const context_error&) {
    }
    EXPECT_TRUE(eventually([&] { return called == static_cast<int>(callbacks.size()); }));
  }
  EXPECT_TRUE(eventually([] { return token::alive() == 0; }));
}

/// The last handles of parents and children are destroyed at the same time, on different threads,
/// while a deadline passes.
TEST(context_race, of_the_destruction_of_handles) {
  runtime rt({.processors = 2});
  const as_default here(rt);
  const context_key<token> key;
  const int rounds = scale(3000, 300);
  constexpr int threads = 3;
  std::array<cancellable, threads> given;
  std::barrier together(threads + 1);
  std::vector<std::jthread> all;
  for (cancellable& mine : given) {
    all.emplace_back([&] {
      for (int i = 0; i < rounds; ++i) {
        together.arrive_and_wait();
        mine = {};
        together.arrive_and_wait();
      }
    });
  }
  for (int i = 0; i < rounds; ++i) {
    given[0] = with_timeout(with_value(background(), key, token()), 20us);
    given[1] = with_timeout(given[0].ctx, 10us);
    given[2] = with_cancel(given[1].ctx);
    if (i % 2 == 0)
      for (cancellable& c : given) c.cancel.detach();
    together.arrive_and_wait();
    together.arrive_and_wait();
  }
  all.clear();
  EXPECT_TRUE(eventually([] { return token::alive() == 0; }));
}

/// Requests a stop on a second thread at about the time of `drops` on this one, many times, or for
/// as long as that takes on a busy machine.
class duel {
 public:
  template <class Make, class Drops>
  void run(Make make, Drops drops) {
    std::stop_source source;
    std::jthread stops([&, random = std::minstd_rand(1)]() mutable {
      for (int round = 1;; ++round) {
        await(begun_, round);
        if (begun_ == over) return;
        loiter(random);
        source.request_stop();
        ended_ = round;
      }
    });
    std::minstd_rand random(2);
    const auto enough = std::chrono::steady_clock::now() + 2s;
    for (int round = 1; round <= 50'000 && std::chrono::steady_clock::now() < enough; ++round) {
      source = std::stop_source();
      auto made = make(source.get_token());
      begun_ = round;
      loiter(random);
      drops(made);
      await(ended_, round);
    }
    begun_ = over;
  }

 private:
  static void await(const std::atomic<int>& counter, int round) {
    for (detail::backoff patience; counter.load() < round;) patience.wait();
  }
  static void loiter(std::minstd_rand& random) {
    for (auto i = random() % 200; i != 0; --i) detail::pause();
  }
  static constexpr int over = std::numeric_limits<int>::max();
  std::atomic<int> begun_{0};
  std::atomic<int> ended_{0};
};

/// The stop request finishes a context whose last handle is dropped at that moment. Its stop_token
/// was requested, so there is a stop_source to stop at the end.
TEST(context_race, of_a_stop_request_with_the_last_handle) {
  duel().run(
      [](std::stop_token t) {
        auto made = with_stop_token(background(), std::move(t));
        return std::pair(made.ctx.stop_token(), std::move(made));
      },
      [](auto& made) {
        { const cancellable dropped = std::move(made.second); }
        while (!made.first.stop_requested()) std::this_thread::yield();
      });
}

/// Only a child keeps the context that the stop request finishes, and the child is dropped.
TEST(context_race, of_a_stop_request_with_the_last_child) {
  duel().run(
      [](std::stop_token t) {
        auto made = with_stop_token(background(), std::move(t));
        made.cancel.detach();
        return with_cancel(made.ctx);
      },
      [](cancellable& child) { const cancellable dropped = std::move(child); });
}

/// The stop comes while the context is being created.
TEST(context_race, of_a_stop_request_with_the_making_of_a_context) {
  duel().run([](std::stop_token t) { return t; },
             [](std::stop_token t) {
               const cancellable made = with_stop_token(background(), t);
               while (!made.ctx.err()) std::this_thread::yield();
             });
}

}  // namespace
