// SPDX-License-Identifier: Apache-2.0

// loop_timers in a loop over io_uring, as examples/adapters/with_io_uring.cc shows it.

#include <liburing.h>
#include <poll.h>

#include <adapters/loop_suite.h>

namespace verge::test {
namespace {

class io_uring_loop {
 public:
  io_uring_loop() {
    allowed_ = io_uring_queue_init(8, &ring_, 0) == 0;
    if (allowed_) watch();
  }
  ~io_uring_loop() {
    if (allowed_) io_uring_queue_exit(&ring_);
  }
  io_uring_loop(const io_uring_loop&) = delete;
  io_uring_loop& operator=(const io_uring_loop&) = delete;
  static bool is_allowed() { return io_uring_loop().allowed_; }
  loop_timers& timers() { return timers_; }
  void run() {
    while (!stopped_) {
      io_uring_cqe* done = nullptr;
      if (io_uring_wait_cqe(&ring_, &done) < 0) continue;
      const bool ended = (done->flags & IORING_CQE_F_MORE) == 0;
      io_uring_cqe_seen(&ring_, done);
      timers_.run();
      if (ended) watch();
    }
  }
  void stop() { stopped_ = true; }

 private:
  void watch() {
    io_uring_prep_poll_multishot(io_uring_get_sqe(&ring_), timers_.fd(), POLLIN);
    EXPECT_GT(io_uring_submit(&ring_), 0);
  }

  loop_timers timers_;
  io_uring ring_{};
  bool stopped_ = false;
  bool allowed_ = true;
};

INSTANTIATE_TYPED_TEST_SUITE_P(io_uring, loop_suite, io_uring_loop);

}  // namespace
}  // namespace verge::test
