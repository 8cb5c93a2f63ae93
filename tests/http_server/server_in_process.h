// SPDX-License-Identifier: Apache-2.0
// The example server inside the test, with the test's pages and access to its counters.
#pragma once

#include <verge/context.h>
#include <verge/runtime.h>

#include <future>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <http_server/server.h>

namespace verge::test {

/// Serves at a port that the system chooses until it is destroyed.
class server_in_process {
 public:
  server_in_process(http::server_options options, http::handler h) {
    options.at = endpoint::loopback(0);
    options.log = [this](std::string_view line) {
      const std::lock_guard held(lock_);
      log_.emplace_back(line);
    };
    auto [ctx, cancel] = with_cancel(background());
    cancel_ = std::move(cancel);
    std::promise<void> listening;
    auto listens = listening.get_future();
    thread_ = std::jthread([this, options, h = std::move(h), ctx = ctx, &listening] {
      runtime rt({.processors = 2});
      rt.run([&]() -> task<> {
        http::server s(options, h);
        server_ = &s;
        listening.set_value();
        co_await s.serve(ctx);
      });
    });
    listens.get();
    port_ = server_->local().port();
  }
  ~server_in_process() { cancel_(); }
  server_in_process(const server_in_process&) = delete;
  server_in_process& operator=(const server_in_process&) = delete;

  http::server* operator->() const { return server_; }
  std::uint16_t port() const { return port_; }
  std::vector<std::string> log() const {
    const std::lock_guard held(lock_);
    return log_;
  }

 private:
  mutable std::mutex lock_;
  std::vector<std::string> log_;
  canceller cancel_;
  http::server* server_{nullptr};
  std::uint16_t port_{0};
  std::jthread thread_;
};

inline http::response echo(const http::request& r) { return {.body = std::string(r.body())}; }

}  // namespace verge::test
