// SPDX-License-Identifier: Apache-2.0

#include <verge/libev.h>

#include <adapters/loop_suite.h>
#include <memory>

namespace verge::test {
namespace {

class libev_loop {
 public:
  libev_loop() = default;
  ~libev_loop() {
    timers_.reset();
    ev_run(loop_, 0);  // ends by itself, as no watcher is left
    ev_loop_destroy(loop_);
  }
  libev_loop(const libev_loop&) = delete;
  libev_loop& operator=(const libev_loop&) = delete;
  verge::ev_timers& timers() { return *timers_; }
  void run() { ev_run(loop_, 0); }
  void stop() { ev_break(loop_, EVBREAK_ALL); }

 private:
  struct ev_loop* loop_ = ev_loop_new(EVFLAG_AUTO);
  std::unique_ptr<verge::ev_timers> timers_ = std::make_unique<verge::ev_timers>(loop_);
};

INSTANTIATE_TYPED_TEST_SUITE_P(libev, loop_suite, libev_loop);

}  // namespace
}  // namespace verge::test
