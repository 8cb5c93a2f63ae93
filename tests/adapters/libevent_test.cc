// SPDX-License-Identifier: Apache-2.0

#include <verge/libevent.h>

#include <adapters/loop_suite.h>
#include <memory>

namespace verge::test {
namespace {

class libevent_loop {
 public:
  libevent_loop() = default;
  ~libevent_loop() {
    timers_.reset();
    EXPECT_EQ(event_base_dispatch(base_), 1) << "no event is left";
    event_base_free(base_);
  }
  libevent_loop(const libevent_loop&) = delete;
  libevent_loop& operator=(const libevent_loop&) = delete;
  verge::event_timers& timers() { return *timers_; }
  void run() { event_base_dispatch(base_); }
  void stop() { event_base_loopbreak(base_); }

 private:
  event_base* base_ = event_base_new();
  std::unique_ptr<verge::event_timers> timers_ = std::make_unique<verge::event_timers>(base_);
};

INSTANTIATE_TYPED_TEST_SUITE_P(libevent, loop_suite, libevent_loop);

}  // namespace
}  // namespace verge::test
