// SPDX-License-Identifier: Apache-2.0

#include "conversation.h"

#include <verge/clock.h>
#include <verge/under.h>

#include <algorithm>
#include <utility>

namespace http {

conversation::conversation(const server_options& options, const handler& h, memory_budget& budget,
                           verge::tcp_conn& conn)
    : options_(options),
      handler_(h),
      conn_(conn),
      share_(budget, server::bytes_per_connection),
      parser_(options_.limit, &share_) {}

verge::task<> conversation::run(verge::context ctx) {
  for (;;) {
    set_read_deadline();
    verge::io_result got;
    if (parser_.inside())
      got = co_await conn_.read_some(in_);
    else
      got = co_await verge::under(ctx, conn_.read_some(in_));

    if (got.error == verge::net_errc::deadline_exceeded && parser_.inside()) {
      refuse(408);
      co_return co_await say_goodbye();
    }
    if (got.error == verge::net_errc::end_of_stream) {
      if (parser_.inside()) refuse(400, "half a request");
      co_return co_await say_goodbye();
    }
    if (got.error) co_return;

    for (std::string_view rest(in_.data(), got.bytes); !rest.empty();) {
      if (!take(rest, !ctx.err())) co_return co_await say_goodbye();
      if (!has_much_to_send()) continue;
      if (!co_await send()) co_return;
    }
    if (out_.empty()) continue;
    // Nearly always the kernel accepts all of it at once, and no task is needed.
    set_write_deadline();
    const auto sent = co_await conn_.write_some(out_);
    if (sent.error) co_return;
    if (sent.bytes == out_.size()) {
      free_what_was_sent();
      continue;
    }
    out_.erase(0, sent.bytes);
    if (!co_await send()) co_return;
  }
}

/// Set once for every wait for a request, and once for every request. What comes in between - empty
/// lines, or further bytes of a request - does not extend it.
void conversation::set_read_deadline() {
  const auto wanted = parser_.inside() ? deadline::request : deadline::idle;
  if (std::exchange(read_deadline_, wanted) == wanted) return;
  conn_.set_read_deadline(verge::clock::now() +
                          (wanted == deadline::idle ? options_.idle : options_.request));
}

/// Consumes the bytes of one request, and appends the response to the output. Returns false if it
/// is the last of this connection.
bool conversation::take(std::string_view& received, bool may_stay) {
  const auto [used, what] = parser_.feed(received);
  received.remove_prefix(used);
  switch (what) {
    case step::more:
      return true;
    case step::expects_continue:
      out_.append("HTTP/1.1 100 Continue\r\n\r\n");
      return true;
    case step::failed:
      return refuse(parser_.status(), parser_.reason());
    case step::complete:
      break;
  }
  response r = ask_handler();
  const connection c = connection_after(parser_.current(), may_stay && r.status != 500);
  const bool with_body = parser_.current().method() != "HEAD";
  parser_.next();
  read_deadline_ = deadline::none;
  return answer(std::move(r), c, with_body);
}

response conversation::ask_handler() const {
  try {
    return handler_(parser_.current());
  } catch (...) {
    return error_response(500);
  }
}

bool conversation::refuse(int status, std::string_view reason) {
  return answer(error_response(status, reason), connection::closes, true);
}

bool conversation::answer(response r, connection c, bool with_body) {
  const std::size_t bytes = out_.size() + r.body.size();
  if (bytes > server::bytes_per_connection / 2 && !share_.hold(memory_share::answer, bytes)) {
    r = error_response(503, "out of memory for answers");
    c = connection::closes;
  }
  constexpr std::size_t head = 256;  // more than most have, so that memory is allocated once
  const bool copied = with_body && r.body.size() < many_;
  if (out_.empty()) out_.reserve(head + (copied ? r.body.size() : 0));
  write_head(out_, r, c);
  if (copied)
    out_.append(r.body);
  else if (with_body)
    body_ = std::move(r.body);
  return c != connection::closes;
}

/// Begins with the answer, and is extended whenever the client has read some of it.
void conversation::set_write_deadline() {
  conn_.set_write_deadline(verge::clock::now() + options_.write);
}

verge::task<bool> conversation::send() {
  for (std::string_view rest : {std::string_view(out_), std::string_view(body_)}) {
    while (!rest.empty()) {
      set_write_deadline();
      const auto [bytes, error] = co_await conn_.write_some(rest);
      if (error) co_return false;
      rest.remove_prefix(bytes);
    }
  }
  free_what_was_sent();
  co_return true;
}

void conversation::free_what_was_sent() noexcept {
  std::string().swap(out_);
  std::string().swap(body_);
  share_.hold(memory_share::answer, 0);
}

/// Closing a socket with unread bytes resets the connection, and the client may not receive what
/// was written last. So the rest is read, for a while, before the socket is closed.
verge::task<> conversation::say_goodbye() {
  const bool sent = co_await send();
  if (!sent || conn_.shutdown_write()) co_return;
  conn_.set_read_deadline(verge::clock::now() +
                          std::min(options_.idle, std::chrono::milliseconds(1000)));
  while (co_await conn_.read_some(in_)) {
  }
}

}  // namespace http
