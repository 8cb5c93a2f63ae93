// SPDX-License-Identifier: Apache-2.0

// The server as a program. It prints where it listens, serves until SIGTERM or SIGINT, finishes the
// requests that have begun, and ends. A second signal ends it at once.

#include <sys/resource.h>
#include <sys/signalfd.h>
#include <verge/context.h>
#include <verge/fd.h>
#include <verge/runtime.h>

#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

#include "server.h"

namespace {

using std::chrono::milliseconds;

constexpr const char* usage = R"(usage: http_server [OPTIONS]

  --port N         0 lets the system choose; 8080 if not given
  --processors N   one per core if not given
  --engine NAME    how timers are kept
  --idle MS        close a connection after so long without a request; 60000
  --request MS     how long a request may take to arrive; 10000
  --write MS       close a connection that takes none of an answer for so long; 60000
  --connections N  how many may be open at once; others wait in the kernel; 16384
  --memory MB      for the buffers of all connections; 503 beyond that; 512
  --help           this text

GET / says hello, POST /echo gives the body back. SIGTERM ends it in good order.
)";

struct settings {
  http::server_options server;
  verge::runtime_options runtime;
  bool help{false};
};

unsigned number(std::string_view option, std::string_view text, unsigned most) {
  unsigned n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n > most)
    throw std::invalid_argument(std::string(option) + " wants a number up to " +
                                std::to_string(most) + ", not '" + std::string(text) + "'");
  return n;
}

settings parse(int count, char** words) {
  settings s;
  for (int i = 1; i < count; ++i) {
    const std::string_view option = words[i];
    if (option == "--help") {
      s.help = true;
      continue;
    }
    if (i + 1 == count)
      throw std::invalid_argument(std::string(option) + ": no such option, or it wants a value");
    const std::string_view value = words[++i];
    constexpr unsigned day = 86'400'000;
    if (option == "--port") {
      const auto port = static_cast<std::uint16_t>(number(option, value, 65535));
      s.server.at = verge::endpoint::loopback(port);
    } else if (option == "--processors") {
      s.runtime.processors = number(option, value, 256);
    } else if (option == "--engine") {
      s.runtime.engine = verge::engine_named(value);
    } else if (option == "--idle") {
      s.server.idle = milliseconds(number(option, value, day));
    } else if (option == "--request") {
      s.server.request = milliseconds(number(option, value, day));
    } else if (option == "--write") {
      s.server.write = milliseconds(number(option, value, day));
    } else if (option == "--connections") {
      s.server.connections = number(option, value, 1'000'000);
    } else if (option == "--memory") {
      s.server.memory = std::size_t{number(option, value, 1 << 20)} << 20;
    } else {
      throw std::invalid_argument("there is no option '" + std::string(option) + "'; see --help");
    }
  }
  return s;
}

http::response answer(const http::request& r) {
  if (r.path() == "/") {
    if (r.method() == "GET" || r.method() == "HEAD") return {.body = "Hello, World!"};
    return {.status = 405, .headers = "Allow: GET, HEAD\r\n", .body = "/ can be read\n"};
  }
  if (r.path() == "/echo") {
    if (r.method() == "POST") return {.body = std::string(r.body())};
    return {.status = 405, .headers = "Allow: POST\r\n", .body = "/echo wants a body\n"};
  }
  return {.status = 404, .body = "there is / and /echo\n"};
}

/// Before the first thread is started, so that signals are only received through a descriptor.
sigset_t block_signals() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  return ends;
}

/// A connection is a descriptor: as many as the system lets us have.
void raise_limits() {
  rlimit descriptors{};
  if (getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return;
  descriptors.rlim_cur = descriptors.rlim_max;
  setrlimit(RLIMIT_NOFILE, &descriptors);
}

verge::task<> wait_for_signals(verge::fd& signals, verge::canceller cancel) {
  std::array<char, sizeof(signalfd_siginfo)> which;
  if (co_await signals.read_full(which)) {
    std::printf("finishing what has begun\n");
    cancel();
  }
  if (co_await signals.read_full(which)) std::_Exit(1);
}

verge::task<> run(const settings& s, sigset_t ends) {
  verge::fd signals = verge::fd::adopt(signalfd(-1, &ends, SFD_CLOEXEC)).or_throw();
  http::server server(s.server, &answer);
  std::printf("listening on %s\n", server.local().to_string().c_str());
  std::fflush(stdout);

  auto [ctx, cancel] = verge::with_cancel(verge::background());
  auto watching = verge::go(wait_for_signals(signals, std::move(cancel)));
  co_await server.serve(ctx);
  watching.cancel();
  try {
    co_await watching;
  } catch (const verge::cancelled&) {
    // no second signal
  }
  std::printf("%llu connections\n", static_cast<unsigned long long>(server.connections()));
}

}  // namespace

int main(int count, char** words) {
  try {
    const settings s = parse(count, words);
    if (s.help) {
      std::printf("%s", usage);
      return 0;
    }
    raise_limits();
    const sigset_t ends = block_signals();
    verge::runtime rt(s.runtime);
    rt.run(run(s, ends));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "http_server: %s\n", e.what());
    return 2;
  }
}
