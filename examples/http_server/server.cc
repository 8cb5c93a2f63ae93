#include "server.h"

#include <malloc.h>
#include <verge/clock.h>
#include <verge/under.h>

#include <algorithm>
#include <array>
#include <utility>

namespace http {

server::server(const server_options& options, handler h)
    : options_(options),
      handler_(std::move(h)),
      listener_(verge::tcp_listener::listen(options_.at).or_throw()) {}

verge::task<> server::serve(verge::context ctx) {
  for (;;) {
    auto [conn, error] = co_await verge::under(ctx, listener_.accept());
    if (error == verge::net_errc::closed || (error && ctx.err())) break;
    if (error) continue;  // this one has gone before we came to it
    one_more();
    verge::go([this, ctx, c = std::move(conn)]() mutable {
      return attend(std::move(c), ctx);
    }).detach();
  }
  listener_.close();
  if (--busy_ > 0) co_await verge::recv(all_gone_);
}

verge::task<> server::attend(verge::tcp_conn conn, verge::context ctx) {
  co_await talk(conn, ctx);
  conn.close();
  one_less();
}

void server::one_more() noexcept {
  ++connections_;
  const std::uint64_t now = ++busy_;
  if (now > most_) most_ = now;
}

void server::one_less() noexcept {
  // After a rush the allocator would keep the memory of all its connections for ever.
  constexpr std::uint64_t rush = 1000;
  std::uint64_t most = most_;
  if (most >= rush && busy_ <= most / 10 && most_.compare_exchange_strong(most, 0)) malloc_trim(0);
  // The server may go as soon as the last one is counted.
  verge::chan<bool> all_gone = all_gone_;
  if (--busy_ == 0) all_gone.try_send(true);
}

verge::task<> server::talk(verge::tcp_conn& conn, verge::context ctx) {
  request_parser parser(options_.limit, handler_);
  std::array<char, 4096> in;
  std::string out;
  std::uint64_t hurried = 0;  // the request that a deadline has been set for
  for (;;) {
    out.clear();
    verge::io_result got;
    if (!parser.inside()) {
      conn.set_deadline(verge::clock::now() + options_.idle);
      got = co_await verge::under(ctx, conn.read_some(in));
    } else {
      if (std::exchange(hurried, parser.number()) != parser.number()) {
        const auto now = verge::clock::now();
        conn.set_read_deadline(now + options_.request);
        conn.set_write_deadline(now + options_.idle);
      }
      got = co_await conn.read_some(in);
    }

    if (got.error == verge::net_errc::deadline_exceeded && parser.inside()) {
      write(out, {.status = 408, .body = "408 Request Timeout\n"}, false);
      co_return co_await say_goodbye(conn, out);
    }
    if (got.error == verge::net_errc::end_of_stream) {
      parser.end(out);
      co_return co_await say_goodbye(conn, out);
    }
    if (got.error) co_return;

    const bool go_on = parser.feed({in.data(), got.bytes}, static_cast<bool>(ctx.err()), out);
    if (!go_on) co_return co_await say_goodbye(conn, out);
    if (out.empty()) continue;
    auto sent = co_await conn.write_all(out);
    if (sent.error) co_return;
  }
}

/// Closing a socket with bytes in it that nobody has read resets the connection, and the other side
/// may never see what was written last. So that is sent, and then the rest is read, for a while.
verge::task<> server::say_goodbye(verge::tcp_conn& conn, const std::string& last_words) {
  const auto now = verge::clock::now();
  conn.set_write_deadline(now + options_.idle);
  if (!last_words.empty() && (co_await conn.write_all(last_words)).error) co_return;
  if (conn.shutdown_write()) co_return;
  conn.set_read_deadline(now + std::min(options_.idle, std::chrono::milliseconds(1000)));
  std::array<char, 4096> rest;
  while (co_await conn.read_some(rest)) {
  }
}

}  // namespace http
