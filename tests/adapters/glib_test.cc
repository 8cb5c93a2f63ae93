// SPDX-License-Identifier: Apache-2.0

#include <verge/glib.h>

#include <adapters/loop_suite.h>
#include <memory>

namespace verge::test {
namespace {

class glib_loop {
 public:
  glib_loop() = default;
  ~glib_loop() {
    timers_.reset();
    EXPECT_FALSE(g_main_context_pending(context_));
    g_main_loop_unref(loop_);
    g_main_context_unref(context_);
  }
  glib_loop(const glib_loop&) = delete;
  glib_loop& operator=(const glib_loop&) = delete;
  verge::glib_timers& timers() { return *timers_; }
  void run() { g_main_loop_run(loop_); }
  void stop() { g_main_loop_quit(loop_); }

 private:
  GMainContext* context_ = g_main_context_new();
  GMainLoop* loop_ = g_main_loop_new(context_, 0);
  std::unique_ptr<verge::glib_timers> timers_ = std::make_unique<verge::glib_timers>(context_);
};

INSTANTIATE_TYPED_TEST_SUITE_P(glib, loop_suite, glib_loop);

}  // namespace
}  // namespace verge::test
