// SPDX-License-Identifier: Apache-2.0

// What the library says goes to one handler; its threads have names.

#include <verge/log.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <support/patience.h>
#include <verge/inspect.h>
#include <verge/runtime.h>
#include <verge/task.h>
#include <verge/time.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <base/log.h>

namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::StartsWith;
using verge::log_level;
using verge::test::eventually;

std::vector<std::string> heard;

void hear(log_level level, std::string_view text) noexcept {
  heard.emplace_back(std::to_string(static_cast<int>(level)) + " " + std::string(text));
}

TEST(log, goes_to_the_handler_and_back_to_stderr) {
  heard.clear();
  EXPECT_EQ(verge::set_log_handler(&hear), nullptr);
  verge::detail::log(log_level::warning, "%d of %s", 3, "them");
  verge::detail::log(log_level::fatal, "an end");
  EXPECT_EQ(verge::set_log_handler(nullptr), &hear);
  EXPECT_EQ(verge::set_log_handler(nullptr), nullptr);
  testing::internal::CaptureStderr();
  verge::detail::log(log_level::error, "printed");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "verge: printed\n");
  EXPECT_THAT(heard, ElementsAre("0 3 of them", "2 an end"));
}

TEST(log, cuts_off_what_is_too_long) {
  heard.clear();
  verge::set_log_handler(&hear);
  verge::detail::log(log_level::warning, "%s", std::string(5000, 'x').c_str());
  verge::set_log_handler(nullptr);
  ASSERT_EQ(heard.size(), 1);
  EXPECT_EQ(heard[0], "0 " + std::string(1023, 'x'));
}

TEST(log, hears_why_the_program_ends) {
  EXPECT_DEATH(
      {
        verge::set_log_handler([](log_level level, std::string_view text) noexcept {
          std::fprintf(stderr, "level %d: %.*s", static_cast<int>(level),
                       static_cast<int>(text.size()), text.data());
        });
        verge::runtime rt({.processors = 1});
        rt.run([] { verge::go([] { throw std::runtime_error("the reason"); }).detach(); });
        while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
      },
      "level 2: an exception of a task or callback was not caught: the reason");
}

std::vector<std::string> thread_names() {
  std::vector<std::string> names;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream in(task.path() / "comm");
    std::string name;
    if (std::getline(in, name)) names.push_back(name);
  }
  return names;
}

TEST(runtime_threads, have_names) {
  verge::runtime rt({.processors = 1});
  const auto mine = rt.run([] {
    std::array<char, 16> name{};
    pthread_getname_np(pthread_self(), name.data(), name.size());
    return std::string(name.data());
  });
  EXPECT_THAT(mine, StartsWith("verge/w"));  // which of them is not said
  EXPECT_TRUE(eventually([] { return testing::Value(thread_names(), Contains("verge/monitor")); }));
}

TEST(runtime_threads, of_several_runtimes_can_be_told_apart) {
  verge::runtime rt({.processors = 1, .name = "shop"});
  verge::runtime longer({.processors = 1, .name = "a-very-long-name"});
  const verge::inspector page(rt, {.at = verge::endpoint::loopback(0)});
  rt.run([] {});
  longer.run([] {});
  for (const char* name :
       {"shop/w0", "shop/monitor", "a-very-/monitor", "verge-i/w0", "verge-i/monitor"}) {
    EXPECT_TRUE(eventually([&] { return testing::Value(thread_names(), Contains(name)); })) << name;
  }
}

TEST(runtime_threads, of_engines_have_names) {
  verge::runtime rt({.processors = 1, .engine = verge::engine::global_heap});
  const auto timer = verge::after_func(rt, std::chrono::hours(1), [] {});
  EXPECT_TRUE(eventually([] { return testing::Value(thread_names(), Contains("verge/timers")); }));
}

}  // namespace
