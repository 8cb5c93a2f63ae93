// SPDX-License-Identifier: Apache-2.0

// What a live runtime does, in words.

#include <verge/dump.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <support/patience.h>
#include <verge/chan.h>
#include <verge/time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <sched/waiting_threads.h>

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

verge::task<> innermost(verge::chan<int> from) { co_await verge::recv(from); }
verge::task<> outer(verge::chan<int> from) { co_await innermost(from); }

TEST(dump, tells_in_which_function_a_task_waits) {
  verge::runtime rt({.processors = 1});
  verge::chan<int> empty;
  auto task = verge::go(rt, outer, empty);
  ASSERT_TRUE(verge::test::eventually([&] {
    return dump(rt).find("innermost") != std::string::npos;
  })) << dump(rt);
  EXPECT_THAT(dump(rt),
              testing::ContainsRegex("task .*outer.*: waits for chan receive.*, in .*innermost"));
  empty.close();
  task.join();
}

TEST(dump, lists_threads_that_wait_and_callbacks_that_do) {
  verge::runtime rt({.processors = 2});
  verge::chan<int> empty;
  verge::chan<int> full;
  std::thread plain([&] { empty.recv(); });
  const auto callback = verge::after_func(rt, 1ms, [&] { full.send(1); });
  const auto threads = [&](const char* what) {
    std::size_t n = 0;
    std::istringstream lines(dump(rt));
    for (std::string line; std::getline(lines, line);) {
      n += line.starts_with("thread ") && line.find(what) != std::string::npos ? 1 : 0;
    }
    return n;
  };
  ASSERT_TRUE(verge::test::eventually([&] {
    return threads(": waits for chan receive") == 1 && threads(": waits for chan send") == 1;
  })) << dump(rt);
  EXPECT_EQ(full.recv(), 1);
  empty.close();
  plain.join();
  EXPECT_TRUE(verge::test::eventually([&] { return threads(": waits for ") == 0; })) << dump(rt);
}

/// All are on the list of this thread, of which so many are taken.
TEST(threads_that_wait, are_no_more_than_there_is_room_for) {
  std::vector<std::unique_ptr<verge::detail::waiting_thread_record>> all;
  for (int i = 1; i <= 70; ++i) {
    all.push_back(std::make_unique<verge::detail::waiting_thread_record>("test", nullptr));
    const std::size_t found = verge::detail::waiting_threads(1000).size();
    EXPECT_EQ(found, static_cast<std::size_t>(std::min(i, 64)));
  }
  EXPECT_EQ(verge::detail::waiting_threads(5).size(), 5U);
  all.erase(all.begin() + 1, all.end() - 1);  // from the middle
  EXPECT_EQ(verge::detail::waiting_threads(1000).size(), 2U);
  all.pop_back();
  EXPECT_EQ(verge::detail::waiting_threads(1000).size(), 1U);
  all.clear();
  EXPECT_EQ(verge::detail::waiting_threads(1000).size(), 0U);
}

class dump_of_engine : public testing::TestWithParam<verge::engine> {};
TEST_P(dump_of_engine, lists_its_next_timers) {
  verge::runtime rt({.processors = 2, .engine = GetParam()});
  std::vector<verge::timer> timers;
  for (int i = 0; i < 200; ++i)
    timers.push_back(verge::after_func(rt, 60s, [] {}, {.label = "later"}));
  const auto first = verge::after_func(rt, 30s, [] {}, {.label = "the first"});
  const auto stopped = verge::after_func(rt, 20s, [] {}, {.label = "stopped"});
  verge::timer moved = verge::after_func(rt, 10s, [] {}, {.label = "moved"});
  const verge::ticker ticks(rt, 40s);
  const_cast<verge::timer&>(stopped).stop();
  moved.stop();
  const std::string text = dump(rt, {.timers = 3});
  EXPECT_THAT(text, testing::ContainsRegex("timer in (29|30) s: the first"));
  EXPECT_THAT(text, HasSubstr(": later"));
  EXPECT_THAT(text, Not(HasSubstr("stopped")));
  EXPECT_THAT(text, Not(HasSubstr("moved")));
}

INSTANTIATE_TEST_SUITE_P(every, dump_of_engine, testing::ValuesIn(verge::engines()),
                         [](const auto& of) { return std::string(verge::name_of(of.param)); });

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
