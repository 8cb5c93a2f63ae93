// Sockets: connections, datagrams, unix sockets, what goes wrong on them, and who may wait with
// whom.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>
#include <verge/chan.h>
#include <verge/net.h>
#include <verge/runtime.h>
#include <verge/simulation.h>
#include <verge/task.h>
#include <verge/timeout.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <support/as_default.h>
#include <support/patience.h>
#include <support/scale.h>

namespace verge::test {
namespace {

using namespace std::chrono_literals;

/// A connection within this machine, both ends of it.
struct two_ends {
  tcp_conn near;
  tcp_conn far;
};

task<two_ends> connected(endpoint at = endpoint::loopback(0)) {
  auto listener = tcp_listener::listen(at).or_throw();
  auto near = (co_await tcp_conn::connect(listener.local().or_throw())).or_throw();
  auto far = (co_await listener.accept()).or_throw();
  co_return two_ends{std::move(near), std::move(far)};
}

std::string_view text(const std::array<char, 64>& bytes, std::size_t n) {
  return {bytes.data(), n};
}

class net : public testing::Test {
 protected:
  runtime rt{{.processors = 2}};
};

TEST_F(net, bytes_go_both_ways_over_ipv4_and_ipv6) {
  for (const endpoint& at : {endpoint::loopback(0), endpoint::loopback_v6(0)}) {
    rt.run([&]() -> task<> {
      auto [near, far] = co_await connected(at);
      std::array<char, 64> bytes;
      EXPECT_EQ((co_await near.write_all("hello")).or_throw(), 5u);
      EXPECT_EQ(text(bytes, (co_await far.read_some(bytes)).or_throw()), "hello");
      EXPECT_EQ((co_await far.write_all("and back")).or_throw(), 8u);
      EXPECT_EQ((co_await near.read_full(buffer(bytes.data(), 8))).or_throw(), 8u);
      EXPECT_EQ(text(bytes, 8), "and back");
      EXPECT_EQ(near.local()->to_string(), far.peer()->to_string());
    });
  }
}

}  // namespace
}  // namespace verge::test
