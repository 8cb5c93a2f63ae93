// SPDX-License-Identifier: Apache-2.0

#include <verge/uv.h>

#include <adapters/loop_suite.h>
#include <memory>

namespace verge::test {
namespace {

class uv_loop {
 public:
  uv_loop() {
    EXPECT_EQ(uv_loop_init(&loop_), 0);
    timers_ = std::make_unique<verge::uv_timers>(&loop_);
  }
  ~uv_loop() {
    timers_.reset();
    uv_run(&loop_, UV_RUN_DEFAULT);  // ends by itself, as no handle is left
    EXPECT_EQ(uv_loop_close(&loop_), 0);
  }
  uv_loop(const uv_loop&) = delete;
  uv_loop& operator=(const uv_loop&) = delete;
  verge::uv_timers& timers() { return *timers_; }
  void run() { uv_run(&loop_, UV_RUN_DEFAULT); }
  void stop() { uv_stop(&loop_); }

 private:
  uv_loop_t loop_;
  std::unique_ptr<verge::uv_timers> timers_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(libuv, loop_suite, uv_loop);

TEST(uv_timers, do_not_keep_the_loop_alive_after_unref) {
  uv_loop_t loop;
  ASSERT_EQ(uv_loop_init(&loop), 0);
  {
    verge::uv_timers timers(&loop);
    timers.start(std::chrono::hours(1), [] {});
    timers.unref();
    EXPECT_EQ(uv_run(&loop, UV_RUN_DEFAULT), 0);
    timers.ref();
    EXPECT_NE(uv_loop_alive(&loop), 0);
  }
  uv_run(&loop, UV_RUN_DEFAULT);
  EXPECT_EQ(uv_loop_close(&loop), 0);
}

}  // namespace
}  // namespace verge::test
