// What a live runtime does, in words.

#include <verge/dump.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <support/patience.h>
#include <verge/chan.h>
#include <verge/time.h>

#include <atomic>
#include <chrono>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

std::string dump(verge::runtime& rt, verge::dump_options options = {}) {
  std::ostringstream text;
  verge::write_dump(text, rt, options);
  return text.str();
}

verge::task<> receives(verge::chan<int> from) { co_await verge::recv(from); }

TEST(dump, tells_what_each_task_waits_for_and_since_when) {
  verge::runtime rt({.processors = 2});
  verge::chan<int> empty;
  auto a = verge::go(rt, receives, empty);
  auto b = rt.spawn([]() -> verge::task<> {
    verge::label_task("the sleeper");
    co_await verge::sleep(1h);
  });
  ASSERT_TRUE(verge::test::eventually([&] { return rt.stats().tasks_waiting == 2; }));
  ASSERT_TRUE(verge::test::eventually([&] {
    const std::string text = dump(rt);
    return text.find("waits for chan receive, since ") != std::string::npos &&
           text.find("task the sleeper: waits for sleep, since ") != std::string::npos;
  })) << dump(rt);
  EXPECT_THAT(dump(rt), HasSubstr("2 tasks\n"));
  EXPECT_THAT(dump(rt, {.tasks = 0}), HasSubstr("and 2 more tasks\n"));
  empty.close();
  b.cancel();
}

TEST(dump, lists_the_timers_that_are_due_next) {
  verge::runtime rt({.processors = 2});
  std::vector<verge::timer> timers;
  for (int i = 0; i < 1000; ++i) timers.push_back(verge::after_func(rt, 2h, [] {}));
  const auto first = verge::after_func(rt, 1h, [n = 1] { static_cast<void>(n); });
  const std::string text = dump(rt, {.timers = 2});
  EXPECT_THAT(text, HasSubstr("1001 timers pending\n"));
  EXPECT_THAT(text, HasSubstr("timer in 3600 s: "));
  EXPECT_THAT(text, HasSubstr("timer in 7200 s: "));
  EXPECT_THAT(text, HasSubstr("lists_the_timers_that_are_due_next"));
  timers.clear();
  EXPECT_THAT(dump(rt), HasSubstr("1 timer pending\n"));
  EXPECT_THAT(dump(rt), Not(HasSubstr("7200 s")));
}

TEST(dump, works_while_every_processor_is_stuck) {
  verge::runtime rt({.processors = 1});
  std::atomic<bool> stop = false;
  auto stuck = rt.spawn([&] {
    while (!stop) std::this_thread::sleep_for(1ms);
  });
  EXPECT_TRUE(verge::test::eventually(
      [&] { return dump(rt).find("processor 0: runs, since ") != std::string::npos; }));
  stop = true;
  stuck.join();
}

TEST(dump, may_be_written_while_timers_come_and_go) {
  verge::runtime rt({.processors = 2});
  std::atomic<bool> stop = false;
  const auto use = [&] {
    std::vector<verge::timer> timers(64);
    for (unsigned i = 0; !stop; ++i) {
      timers[i % 64] = verge::after_func(rt, 1h, [i] { static_cast<void>(i); });
    }
  };
  std::thread other(use);
  auto task = rt.spawn(use);
  for (int i = 0; i < 50; ++i) EXPECT_THAT(dump(rt), HasSubstr("pending"));
  stop = true;
  other.join();
  task.join();
}

}  // namespace
