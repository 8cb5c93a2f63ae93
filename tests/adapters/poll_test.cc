// SPDX-License-Identifier: Apache-2.0

// loop_timers in plain loops: epoll, poll, and shared_timer_queue with a time-out and an eventfd.

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <verge/shared_queue.h>

#include <adapters/loop_suite.h>

namespace verge::test {
namespace {

class epoll_loop {
 public:
  epoll_loop() {
    epoll_event event{.events = EPOLLIN, .data = {.fd = timers_.fd()}};
    EXPECT_EQ(::epoll_ctl(epoll_, EPOLL_CTL_ADD, timers_.fd(), &event), 0);
  }
  ~epoll_loop() { ::close(epoll_); }
  epoll_loop(const epoll_loop&) = delete;
  epoll_loop& operator=(const epoll_loop&) = delete;
  verge::loop_timers& timers() { return timers_; }
  void run() {
    while (!stopped_) {
      epoll_event event;
      if (::epoll_wait(epoll_, &event, 1, -1) == 1 && event.data.fd == timers_.fd()) timers_.run();
    }
  }
  void stop() { stopped_ = true; }

 private:
  verge::loop_timers timers_;
  int epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  bool stopped_ = false;
};

class poll_loop {
 public:
  verge::loop_timers& timers() { return timers_; }
  void run() {
    while (!stopped_) {
      pollfd watched{.fd = timers_.fd(), .events = POLLIN, .revents = 0};
      // A few at a time, so that other descriptors would have their turn.
      if (::poll(&watched, 1, -1) == 1) timers_.run(7);
    }
  }
  void stop() { stopped_ = true; }

 private:
  verge::loop_timers timers_;
  bool stopped_ = false;
};

/// A loop that computes its time-out, and is woken by an eventfd.
class eventfd_loop {
 public:
  struct timers_type : verge::shared_timer_queue {
    using verge::shared_timer_queue::reset;
    using verge::shared_timer_queue::shared_timer_queue;
    using verge::shared_timer_queue::start;
    template <class Rep, class Period>
    auto start(std::chrono::duration<Rep, Period> d, std::function<void()> f) {
      return start(verge::clock::now() + d, std::move(f));
    }
    template <class Rep, class Period>
    bool reset(id t, std::chrono::duration<Rep, Period> d) {
      return reset(t, verge::clock::now() + d);
    }
  };
  eventfd_loop() = default;
  ~eventfd_loop() { ::close(event_); }
  eventfd_loop(const eventfd_loop&) = delete;
  eventfd_loop& operator=(const eventfd_loop&) = delete;
  timers_type& timers() { return timers_; }
  void run() {
    while (!stopped_) {
      pollfd watched{.fd = event_, .events = POLLIN, .revents = 0};
      int left = -1;
      if (const auto next = timers_.sleep_until()) {
        const auto ms = std::chrono::ceil<std::chrono::milliseconds>(*next - verge::clock::now());
        left = static_cast<int>(std::max<std::int64_t>(ms.count(), 0));
      }
      if (::poll(&watched, 1, left) == 1) {
        std::uint64_t woken = 0;
        EXPECT_EQ(::read(event_, &woken, sizeof woken), 8);
      }
      timers_.run(verge::clock::now());
    }
  }
  void stop() { stopped_ = true; }

 private:
  void wake() const {
    const std::uint64_t one = 1;
    EXPECT_EQ(::write(event_, &one, sizeof one), 8);
  }

  int event_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  timers_type timers_{[this](verge::clock::time_point) { wake(); }};
  bool stopped_ = false;
};

using plain_loops = testing::Types<epoll_loop, poll_loop, eventfd_loop>;
INSTANTIATE_TYPED_TEST_SUITE_P(plain, loop_suite, plain_loops);

}  // namespace
}  // namespace verge::test
