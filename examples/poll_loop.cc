// SPDX-License-Identifier: Apache-2.0

// verge::timer_queue inside an existing event loop: no threads, no runtime, only poll().
//
// The loop echoes what arrives on a socket. Each message extends the idle time-out; when nothing
// has arrived for 50 ms the connection is closed. A second timer sends three messages, 20 ms apart.

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <verge/clock.h>
#include <verge/queue.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>

using namespace std::chrono_literals;
using loop_clock = verge::clock;

namespace {

/// A queue with verge::clock: deadlines are computed from its fast reading.
using timer_queue = verge::basic_timer_queue<std::function<void()>, loop_clock>;

/// For poll(): milliseconds until the next timer, rounded up so that it does not wake early and
/// spin.
int time_out(const timer_queue& timers) {
  const auto next = timers.next();
  if (!next) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - loop_clock::now());
  return left > 0ms ? static_cast<int>(left.count()) : 0;
}

}  // namespace

int main() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return EXIT_FAILURE;
  const int server = ends[0];
  const int client = ends[1];

  timer_queue timers;
  bool open = true;
  const auto idle = timers.start(loop_clock::fast_now() + 50ms, [&] {
    std::puts("nothing for 50 ms: closing");
    open = false;
  });
  int messages = 3;
  std::function<void()> talk = [&] {
    if (::write(client, "hello", 5) != 5) throw std::runtime_error("the client cannot write");
    if (--messages > 0) timers.start(loop_clock::fast_now() + 20ms, talk);
  };
  timers.start(loop_clock::fast_now() + 20ms, talk);

  while (open) {
    pollfd watched{.fd = server, .events = POLLIN, .revents = 0};
    if (::poll(&watched, 1, time_out(timers)) > 0) {
      char text[64];
      const auto n = ::read(server, text, sizeof text);
      std::printf("%.*s\n", static_cast<int>(n), text);
      timers.reset(idle, loop_clock::fast_now() + 50ms);
    }
    timers.run(loop_clock::now());
  }
  ::close(server);
  ::close(client);
}
