// SPDX-License-Identifier: Apache-2.0

// How late pushes arrive, with and without receivers that hang.
//
//   push_lateness [HANGING [PER_SECOND [SECONDS]]]
//
// A server in this process has tasks that are due one after the other, and pushes them to a
// receiver in this process, which notes when each arrives. Then the same again while as many
// receivers as told take the connection and say nothing. Lateness is from the due time to the
// arrival of the request.

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <verge/net.h>
#include <verge/runtime.h>
#include <verge/task.h>

#include "push/inbox.h"
#include "push/signature.h"
#include "serve/server.h"

namespace {

using namespace verge::server;
using namespace std::chrono_literals;
using verge::endpoint;

/// Takes requests whose body is the time that they were due, and answers each.
class receiver {
 public:
  receiver() {
    runtime_.run([this]() -> verge::task<> {
      listener_ = verge::tcp_listener::listen(endpoint::loopback(0)).or_throw();
      port_ = listener_.local().or_throw().port();
      co_return;
    });
    accepting_ = runtime_.spawn([this] { return accept(); });
  }
  receiver(const receiver&) = delete;
  receiver& operator=(const receiver&) = delete;
  ~receiver() {
    static_cast<void>(listener_.close());
    accepting_.join();
  }
  std::uint16_t port() const { return port_; }
  std::vector<nanoseconds> take() {
    std::lock_guard held(lock_);
    return std::exchange(late_, {});
  }
  std::size_t count() {
    std::lock_guard held(lock_);
    return late_.size();
  }

 private:
  verge::task<> accept() {
    for (;;) {
      auto [conn, error] = co_await listener_.accept();
      if (error) co_return;
      verge::go(serve(this, std::move(conn))).detach();
    }
  }
  static verge::task<> serve(receiver* me, verge::tcp_conn conn) {
    std::string in;
    std::array<char, 4096> bytes;
    std::size_t end = std::string::npos;
    constexpr std::size_t body = 19;  // digits of a time in nanoseconds
    while (end == std::string::npos || in.size() < end + 4 + body) {
      const auto got = co_await conn.read_some(bytes);
      if (got.error) co_return;
      in.append(bytes.data(), got.bytes);
      end = in.find("\r\n\r\n");
    }
    const wall_time now = wall_now();
    {
      std::lock_guard held(me->lock_);
      me->late_.push_back(now - std::stoll(in.substr(end + 4)));
    }
    constexpr std::string_view answer = "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
    static_cast<void>(co_await conn.write_all(answer));
  }

  verge::runtime runtime_;
  verge::tcp_listener listener_;
  std::uint16_t port_{0};
  std::mutex lock_;
  std::vector<nanoseconds> late_;
  verge::join_handle<> accepting_;
};

/// A socket at all addresses of loopback that never accepts.
int hang(std::uint16_t& port) {
  const int made = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  socklen_t size = sizeof at;
  if (::bind(made, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 ||
      ::listen(made, 65'535) != 0 ||
      ::getsockname(made, reinterpret_cast<sockaddr*>(&at), &size) != 0) {
    throw std::runtime_error("cannot listen");
  }
  port = ntohs(at.sin_port);
  return made;
}

command set_push(const std::string& tube, const std::string& url) {
  auto s = std::make_shared<push_settings>();
  s->url = url;
  s->secrets = {push::new_secret()};
  s->concurrency = 10'000;
  s->timeout = 300 * second;
  command c(verb::set_push);
  c.tube = tube;
  c.push = s;
  return c;
}

void show(const char* what, std::vector<nanoseconds> late) {
  std::sort(late.begin(), late.end());
  const auto at = [&](double part) {
    return static_cast<double>(
               late[static_cast<std::size_t>(part * static_cast<double>(late.size() - 1))]) /
           1e6;
  };
  fmt::print("{:24} {:6} pushes  p50 {:.2f} ms  p99 {:.2f} ms  most {:.2f} ms  early {}\n", what,
             late.size(), at(0.5), at(0.99), at(1),
             std::count_if(late.begin(), late.end(), [](nanoseconds n) { return n < 0; }));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int hanging = argc > 1 ? std::atoi(argv[1]) : 1'000;
  const int per_second = argc > 2 ? std::atoi(argv[2]) : 200;
  const int seconds = argc > 3 ? std::atoi(argv[3]) : 10;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  std::string dir = (std::filesystem::current_path() / "push-lateness-XXXXXX").string();
  if (::mkdtemp(dir.data()) == nullptr) return 1;
  {
    server_options o;
    o.listen = endpoint::loopback(0);
    o.directory = dir + "/tasks";
    o.push.may_connect = [](const endpoint&) { return true; };
    task_server server(o);
    receiver well;
    const auto boss = std::make_shared<push::deaf_client>();
    const auto say = [&](command c) { server.submit(boss, std::move(c)); };
    say(set_push("well", fmt::format("http://127.0.0.1:{}/", well.port())));
    const auto measure = [&](const char* what) {
      const wall_time begin = wall_now() + second;
      const int tasks = per_second * seconds;
      for (int i = 0; i < tasks; ++i) {
        command put(verb::put);
        put.tube = "well";
        new_task& t = put.tasks.emplace_back();
        t.due = begin + i * (second / per_second);
        t.ttr = 600 * second;
        t.body = std::to_string(*t.due);
        say(std::move(put));
      }
      while (well.count() < static_cast<std::size_t>(tasks)) std::this_thread::sleep_for(10ms);
      show(what, well.take());
    };
    measure("none hangs");
    std::uint16_t port = 0;
    const int silent = hang(port);
    say(set_push("silent", ""));
    for (int i = 0; i < hanging; ++i) {
      command put(verb::put);
      put.tube = "silent";
      new_task& t = put.tasks.emplace_back();
      t.ttr = 3'600 * second;
      t.body = std::string(1, 'x');
      t.url = fmt::format("http://127.1.{}.{}:{}/", i / 250, 1 + i % 250, port);
      say(std::move(put));
    }
    while (server.pushes().under_way.load() < static_cast<std::uint64_t>(hanging)) {
      std::this_thread::sleep_for(10ms);
    }
    measure(fmt::format("{} hang", hanging).c_str());
    measure(fmt::format("{} hang, again", hanging).c_str());
    server.stop();
    ::close(silent);
  }
  std::filesystem::remove_all(dir);
}
