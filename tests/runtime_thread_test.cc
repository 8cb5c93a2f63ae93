// SPDX-License-Identifier: Apache-2.0

// Threads that cannot be started: the error message.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <verge/runtime.h>
#include <verge/time.h>

#include <chrono>
#include <cstddef>
#include <system_error>

#include <base/runtime_thread.h>

namespace verge {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// During its lifetime no thread can be started: the default stack size exceeds the address space.
/// That fails like a limit on threads, and also for the superuser.
class without_threads {
 public:
  without_threads() {
    EXPECT_EQ(pthread_getattr_default_np(&before_), 0);
    pthread_attr_t huge;
    EXPECT_EQ(pthread_getattr_default_np(&huge), 0);
    EXPECT_EQ(pthread_attr_setstacksize(&huge, std::size_t{1} << 50), 0);
    EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
    pthread_attr_destroy(&huge);
  }
  ~without_threads() {
    EXPECT_EQ(pthread_setattr_default_np(&before_), 0);
    pthread_attr_destroy(&before_);
  }
  without_threads(const without_threads&) = delete;
  without_threads& operator=(const without_threads&) = delete;

 private:
  pthread_attr_t before_{};
};

const auto says_what_to_do = ThrowsMessage<std::system_error>(
    AllOf(HasSubstr("verge: a thread cannot be started"), HasSubstr("ulimit -u"),
          HasSubstr("fewer threads and processors: Resource temporarily unavailable")));

TEST(runtime_thread, that_cannot_be_started_is_an_error_that_says_what_to_do) {
  const without_threads none;
  EXPECT_THAT([] { detail::start_runtime_thread("test", [] {}).join(); }, says_what_to_do);
}

TEST(runtime_thread, is_missed_when_a_runtime_begins_which_works_once_there_are_threads) {
  {
    const without_threads none;
    EXPECT_THAT([] { runtime rt({.processors = 2}); }, says_what_to_do);
    EXPECT_THAT([] { verge::sleep(1ms).wait(); }, says_what_to_do);
  }
  verge::sleep(1ms).wait();
  EXPECT_EQ(runtime({.processors = 2}).run([] { return 3; }), 3);
}

TEST(runtime_thread, is_missed_when_an_engine_starts_its_own_with_the_first_timer) {
  runtime rt({.processors = 1, .engine = engine::global_heap});
  rt.run([] {});
  rt.run([] {
    {
      const without_threads none;
      EXPECT_THAT([] { verge::timer t(1ms); }, says_what_to_do);
    }
    verge::timer(1ms).c().recv();
  });
}

}  // namespace
}  // namespace verge
