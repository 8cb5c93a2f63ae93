// SPDX-License-Identifier: Apache-2.0

// verge's timers in a loop over io_uring: one request stays, and completes when a timer is due.
// Exits with 77, which ctest takes for "skipped", where the kernel does not allow io_uring.

#include <liburing.h>
#include <poll.h>
#include <verge/loop.h>

#include <chrono>
#include <cstdio>
#include <thread>

using namespace std::chrono_literals;

namespace {

/// Asks for a completion whenever the descriptor becomes readable.
void watch(io_uring& ring, int fd) {
  io_uring_sqe* request = io_uring_get_sqe(&ring);
  io_uring_prep_poll_multishot(request, fd, POLLIN);
  io_uring_sqe_set_data(request, nullptr);
  io_uring_submit(&ring);
}

}  // namespace

int main() {
  io_uring ring;
  if (const int error = io_uring_queue_init(8, &ring, 0); error < 0) {
    std::printf("no io_uring here (error %d)\n", -error);
    return 77;
  }
  {
    verge::loop_timers timers;
    watch(ring, timers.fd());
    bool open = true;
    auto idle = timers.start(30s, [&] { open = false; });
    std::jthread other([&] { timers.start(10ms, [&] { timers.reset(idle, 20ms); }); });
    while (open) {
      io_uring_cqe* done = nullptr;
      if (io_uring_wait_cqe(&ring, &done) < 0) continue;  // interrupted
      const bool ended = (done->flags & IORING_CQE_F_MORE) == 0;
      io_uring_cqe_seen(&ring, done);
      timers.run();
      if (ended) watch(ring, timers.fd());
    }
  }
  std::puts("closed");
  io_uring_queue_exit(&ring);
}
