// SPDX-License-Identifier: Apache-2.0

// A connection whose client has its reply before the call that sends it returns, as is usual on one
// machine: the client's next command is read meanwhile.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include <verge/net.h>
#include <verge/runtime.h>

#include "beanstalk/format.h"
#include "serve/connection.h"

namespace {

/// The call of send() that has this set returns late.
thread_local bool stays = false;
std::atomic<bool> is_sent{false};
std::atomic<bool> may_return{false};

}  // namespace

// In place of the one of the C library.
extern "C" ssize_t send(int s, const void* bytes, size_t size, int flags) {
  const ssize_t n = ::syscall(SYS_sendto, s, bytes, size, flags, nullptr, 0);
  if (stays) {
    is_sent = true;
    is_sent.notify_all();
    may_return.wait(false);
  }
  return n;
}

namespace {

using namespace verge::server;
using namespace std::chrono_literals;

class counting_sink final : public command_sink {
 public:
  using command_sink::submit;
  void submit(std::span<request> requests) override {
    for (request& r : requests) {
      if (r.what.what == verb::list_tubes) ++lists;
      if (r.what.what == verb::leave) left = true;
      r.from.reset();
    }
  }
  bool has(int n) const {
    for (int i = 0; i < 2000 && lists < n; ++i) std::this_thread::sleep_for(5ms);
    return lists == n;
  }
  std::atomic<int> lists{0};
  std::atomic<bool> left{false};
};

TEST(a_connection, reads_the_next_command_while_a_reply_is_being_sent) {
  verge::runtime rt;
  counting_sink submitted;
  connection_house shared{.to = submitted, .limits = {}, .me = {}};
  rt.run([](counting_sink& sink, connection_house& house) -> verge::task<> {
    auto listener = verge::tcp_listener::listen(verge::endpoint::loopback(0)).or_throw();
    const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(listener.local().or_throw().port());
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(client, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
    auto conn = (co_await listener.accept()).or_throw();
    const auto it = std::make_shared<connection>(house, std::move(conn), house.clients.enter());
    it->start();
    const auto ask = [&] { EXPECT_EQ(::write(client, "list-tubes\r\n", 12), 12); };
    verge::blocking([&] {
      ask();
      EXPECT_TRUE(sink.has(1));
      std::thread committer([&] {
        stays = true;
        it->deliver({});
        it->flush();
      });
      is_sent.wait(false);
      ask();
      EXPECT_TRUE(sink.has(2)) << "it is not read before send() has returned";
      may_return = true;
      may_return.notify_all();
      committer.join();
      ::shutdown(client, SHUT_WR);
      while (!sink.left) std::this_thread::sleep_for(1ms);
      it->left();
      char byte = 0;
      while (::read(client, &byte, 1) > 0) continue;
      ::close(client);
    });
  }(submitted, shared));
}

}  // namespace
