// SPDX-License-Identifier: Apache-2.0

// Timers for which there is no memory: each request is refused in its turn, with every engine. What
// throws leaves nothing behind: no node, no function, no timer that is pending.

#include <gtest/gtest.h>
#include <verge/context.h>
#include <verge/time.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include <base/this_thread.h>
#include <clock/fast_clock.h>
#include <clock/true_clock.h>
#include <support/lone_engine.h>
#include <support/patience.h>

// After the headers that declare what it replaces.
#include <support/failures.h>

namespace verge::test {
namespace {

using namespace std::chrono_literals;

/// An engine by whose timers the thread goes.
class engine_here final : public lone_engine {
 public:
  explicit engine_here(verge::engine which)
      : lone_engine(which), before_(std::exchange(detail::this_thread.current, this)) {}
  ~engine_here() { detail::this_thread.current = before_; }
  engine_here(const engine_here&) = delete;
  engine_here& operator=(const engine_here&) = delete;

  std::size_t nodes() { return timers().memory().nodes_live; }

 private:
  detail::scheduler* before_;
};

using payload = std::shared_ptr<int>;

struct way {
  const char* name;
  void (*makes)(const payload&);
};
constexpr way ways[] = {
    {"a function", [](const payload& p) { const auto t = after_func(30s, [p] {}); }},
    {"a large function",
     [](const payload& p) {
       const std::array<char, 300> more{};
       const auto t = after_func(30s, [p, more] { static_cast<void>(more); });
     }},
    {"a function at a time",
     [](const payload& p) { const auto t = after_func(clock::time_point(3630s), [p] {}); }},
    {"a function that is called again and again",
     [](const payload& p) { const auto t = every(30s, [p] {}); }},
    {"a channel", [](const payload&) { const timer t(30s); }},
    {"a channel alone", [](const payload&) { static_cast<void>(after(30s)); }},
    {"a ticker that skips", [](const payload&) { const ticker t(30s); }},
    {"a ticker that counts", [](const payload&) { const ticker t(30s, missed_ticks::burst); }},
    {"a ticker that waits", [](const payload&) { const ticker t(30s, missed_ticks::delay); }},
    {"a context", [](const payload&) { static_cast<void>(with_timeout(background(), 30s)); }}};

class timers_of_engine : public testing::TestWithParam<engine> {};
INSTANTIATE_TEST_SUITE_P(engines, timers_of_engine,
                         testing::ValuesIn(engines().begin(), engines().end()),
                         [](const auto& e) { return std::string(name_of(e.param)); });

TEST_P(timers_of_engine, that_cannot_be_made_leave_nothing_behind) {
  for (const resource kind : {resource::memory, resource::mapping}) {
    for (const way& w : ways) {
      bool made = true;
      for (long nth = 1; made; ++nth) {
        SCOPED_TRACE(testing::Message() << w.name << ", request " << nth);
        engine_here e(GetParam());
        const auto p = std::make_shared<int>(0);
        bool refused = false;
        fail(kind, nth, 1);
        try {
          w.makes(p);
        } catch (const std::bad_alloc&) {
          refused = true;
        }
        made = has_failed();
        fail_no_more();
        EXPECT_LE(refused, made) << "there was memory";
        while (e.engine().check_timers(0, e.now(), true).ran != 0) {
        }
        if (refused) {
          EXPECT_EQ(e.nodes(), 0U);
          EXPECT_EQ(e.engine().counts(0).live, 0U);
          EXPECT_EQ(p.use_count(), 1);
        }
        w.makes(p);
        EXPECT_EQ(e.engine().verify(), "");
        ASSERT_LT(nth, 100);
      }
    }
  }
}

/// The default engine under the machine's clock: the way of most timers.
class quick_engine final : public bench::bare_host {
 public:
  quick_engine() : bare_host(verge::engine::hybrid, true) { engine().grow(1); }
  ~quick_engine() { end(); }
  quick_engine(const quick_engine&) = delete;
  quick_engine& operator=(const quick_engine&) = delete;

  std::size_t nodes() { return timers().memory().nodes_live; }
  std::int64_t now() noexcept override { return detail::true_now(); }
  std::int64_t cheap_now() noexcept override { return detail::true_now(); }
  unsigned home_processor() noexcept override { return 0; }
  void timer_fired(std::int64_t, std::int64_t) noexcept override {}
};

/// Until the thread reads the processor's counter, if that is in use.
void read_clock_quickly() {
  using detail::fast_clock;
  EXPECT_TRUE(eventually([] {
    static_cast<void>(fast_clock::now());
    return fast_clock::source_in_use() != fast_clock::source::tsc || fast_clock::anchored();
  }));
}

/// The first timer of all that is started, in a node that was in use before.
TEST(a_timer, that_gets_no_entry_leaves_its_node) {
  int refusals = 0;
  for (const resource kind : {resource::memory, resource::mapping}) {
    bool made = true;
    for (long nth = 1; made; ++nth) {
      SCOPED_TRACE(testing::Message() << "request " << nth);
      quick_engine e;
      detail::destroy_timer(detail::make_func_timer(e.timers(), [] {}));
      ASSERT_EQ(e.nodes(), 0U);
      read_clock_quickly();
      fail(kind, nth, 1);
      detail::timer_node* t = nullptr;
      try {
        t = detail::start_func_timer(
            e.timers(), second, [] {}, 0);
      } catch (const std::bad_alloc&) {
        ++refusals;
      }
      fail_no_more();
      made = has_failed();
      EXPECT_LE(t == nullptr, made) << "there was memory";
      EXPECT_EQ(e.nodes(), t == nullptr ? 0U : 1U);
      EXPECT_EQ(e.engine().verify(), "");
      if (t != nullptr) detail::destroy_timer(*t);
      ASSERT_LT(nth, 100);
    }
  }
  EXPECT_GT(refusals, 0);
}

/// It is as before, or it has the new time.
TEST_P(timers_of_engine, that_cannot_be_reset_stay_as_they_were) {
  for (const resource kind : {resource::memory, resource::mapping}) {
    for (const bool stopped : {false, true}) {
      bool made = true;
      for (long nth = 1; made; ++nth) {
        SCOPED_TRACE(testing::Message() << "request " << nth);
        engine_here e(GetParam());
        timer t = after_func(30s, [] {});
        if (stopped) t.stop();
        bool refused = false;
        fail(kind, nth, 1);
        try {
          EXPECT_EQ(t.reset(10s), !stopped);
        } catch (const std::bad_alloc&) {
          refused = true;
        }
        made = has_failed();
        fail_no_more();
        EXPECT_EQ(e.engine().verify(), "");
        EXPECT_EQ(t.stop(), !refused || !stopped);
        ASSERT_LT(nth, 100);
      }
    }
  }
}

}  // namespace
}  // namespace verge::test
