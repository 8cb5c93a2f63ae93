// SPDX-License-Identifier: Apache-2.0

// The report, in a build with assertions, of a handle whose destructor waits long for its callback.

#include <gtest/gtest.h>
#include <unistd.h>
#include <verge/time.h>

#include <array>
#include <chrono>
#include <latch>
#include <semaphore>
#include <string>
#include <thread>

namespace verge {
namespace {

using namespace std::chrono_literals;

/// What is written to standard error, from here on.
class caught_stderr {
 public:
  caught_stderr() : before_(::dup(2)) {
    EXPECT_EQ(::pipe(ends_.data()), 0);
    ::dup2(ends_[1], 2);
  }
  ~caught_stderr() {
    ::dup2(before_, 2);
    for (const int fd : {before_, ends_[0], ends_[1]}) ::close(fd);
  }
  caught_stderr(const caught_stderr&) = delete;
  caught_stderr& operator=(const caught_stderr&) = delete;

  /// Waits for a line.
  std::string line() const {
    std::string read;
    for (char c = 0; c != '\n' && ::read(ends_[0], &c, 1) == 1;) read += c;
    return read;
  }

 private:
  int before_;
  std::array<int, 2> ends_{};
};

TEST(a_handle_whose_end_waits_for_its_callback, is_reported_in_a_build_with_assertions) {
#ifdef NDEBUG
  GTEST_SKIP() << "this build has none";
#endif
  std::binary_semaphore lock(0);  // taken by the thread that ends the handle
  std::latch begun(1);
  timer t = after_func(0s, [&] {
    begun.count_down();
    lock.acquire();
  });
  begun.wait();
  const caught_stderr report;
  std::thread ends([&] { t = timer(); });
  EXPECT_NE(report.line().find("destroy it after the unlock"), std::string::npos);
  lock.release();
  ends.join();
}

}  // namespace
}  // namespace verge
