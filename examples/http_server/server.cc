// SPDX-License-Identifier: Apache-2.0

#include "server.h"

#include <verge/time.h>
#include <verge/under.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <utility>

#include "conversation.h"

namespace http {

server::server(const server_options& options, handler h)
    : options_(options),
      handler_(std::move(h)),
      listener_(verge::tcp_listener::listen(options_.at).or_throw()),
      budget_(options_.memory) {}

verge::task<> server::serve(verge::context ctx) {
  std::exception_ptr failure;
  try {
    co_await accept_all(ctx);
  } catch (const verge::context_error&) {
    // it is to end
  } catch (...) {
    failure = std::current_exception();
  }
  listener_.close();
  if (--busy_ > 0) co_await verge::recv(all_ended_);  // they refer to this object
  if (failure) std::rethrow_exception(failure);
}

verge::task<> server::accept_all(verge::context ctx) {
  constexpr std::chrono::milliseconds shortest{5};
  constexpr std::chrono::milliseconds longest{1000};
  auto pause = shortest;
  for (;;) {
    while (open_connections() >= options_.connections)
      co_await verge::under(ctx, verge::recv(room_));
    auto [conn, error] = co_await verge::under(ctx, listener_.accept());
    if (ctx.err() || error == verge::net_errc::closed) co_return;
    if (!error) error = start(std::move(conn), ctx);
    if (!error) {
      pause = shortest;
      continue;
    }
    // It may be transient or persist: the server continues, and does not spin.
    log("accept: " + error.message() + "; trying again in " + std::to_string(pause.count()) +
        " ms");
    co_await verge::under(ctx, verge::sleep(pause));
    pause = std::min(2 * pause, longest);
  }
}

std::error_code server::start(verge::tcp_conn conn, const verge::context& ctx) noexcept {
  ++busy_;  // before it is counted: one that was counted and is not open has ended
  ++connections_;
  try {
    verge::go([this, ctx, c = std::move(conn)]() mutable {
      return attend(std::move(c), ctx);
    }).detach();
    return {};
  } catch (const std::bad_alloc&) {
    one_less();
    return std::make_error_code(std::errc::not_enough_memory);
  }
}

verge::task<> server::attend(verge::tcp_conn conn, verge::context ctx) {
  try {
    conversation talk(options_, handler_, budget_, conn);
    co_await talk.run(ctx);
  } catch (const std::exception& e) {
    log(std::string("a connection is closed: ") + e.what());
  }
  conn.close();
  one_less();
}

void server::one_less() noexcept {
  // The server may be destroyed as soon as the last one is counted.
  verge::chan<bool> all_ended = all_ended_;
  verge::chan<bool> room = room_;
  const std::uint64_t full = options_.connections + 1;
  const std::uint64_t before = busy_.fetch_sub(1);
  if (before == 1) all_ended.try_send(true);
  if (before >= full) room.try_send(true);
}

void server::log(const std::string& line) const {
  if (options_.log)
    options_.log(line);
  else
    std::fprintf(stderr, "http_server: %s\n", line.c_str());
}

}  // namespace http
