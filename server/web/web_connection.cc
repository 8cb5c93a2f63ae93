// SPDX-License-Identifier: Apache-2.0

#include "web_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <verge/clock.h>
#include <verge/select.h>
#include <verge/time.h>

#include "../text/coding.h"
#include "http1/request_syntax.h"
#include "http1/response.h"
#include "origin.h"
#include "problem.h"

namespace verge::server::web {

namespace {

/// The connection object with its buffers, rounded up.
constexpr std::size_t bytes_per_connection = 16U << 10;
/// For so long it is not looked whether a client whose reserve waits has left.
constexpr std::chrono::milliseconds soon{10};
constexpr std::string_view always =
    "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n";

http::response refuse_http(int status, std::string_view reason) {
  return response_of({.status = status,
                      .type = status == 503 ? "overloaded" : "bad-http",
                      .detail = std::string(reason),
                      .headers = status == 503 ? "Retry-After: 1\r\n" : ""});
}

bool may_repeat(const http::request& r) {
  const std::string_view key = r.header("idempotency-key");
  constexpr std::size_t longest_key = 255;
  if (key.size() > longest_key) {
    throw refused({.type = "bad-value",
                   .detail = "an Idempotency-Key has at most 255 bytes",
                   .where = "Idempotency-Key"});
  }
  return r.method() == "POST" && !key.empty();
}

/// Whether the broker keeps the reply, on disk.
bool is_kept_by_broker(const operation& op) {
  return op.what == operation::kind::ask && op.commands.size() == 1 &&
         keeps_reply(op.commands.front().what);
}

/// Whether the peer sends no more, also if there are bytes before the end that were not read yet.
bool has_ended(int fd) noexcept {
  pollfd p{.fd = fd, .events = POLLRDHUP, .revents = 0};
  return ::poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

std::string print_of(const http::request& r) {
  std::string all(r.target());
  all.append("\n").append(r.body());
  const auto hash = hash_of(all);
  return base64({reinterpret_cast<const char*>(hash.data()), hash.size()});
}

}  // namespace

web_connection::web_connection(web_house& house, stream_socket conn, crowd::place place)
    : client(leases::by_token),
      house_(house),
      place_(std::move(place)),
      conn_(std::move(conn)),
      share_(house.budget, bytes_per_connection),
      parser_(house.limits.http, &share_) {}

void web_connection::start() { go(&web_connection::run, shared_from_this()).detach(); }

void web_connection::finish() noexcept { static_cast<void>(conn_.shutdown_read()); }

void web_connection::deliver(reply r) {
  std::lock_guard held(lock_);
  replies_.push_back(std::move(r));
}

void web_connection::flush() noexcept {
  {
    std::lock_guard held(lock_);
    if (replies_.size() < expected_) return;
  }
  static_cast<void>(answered_.try_send(true));
}

void web_connection::left() noexcept {
  {
    std::lock_guard held(lock_);
    left_ = true;
  }
  static_cast<void>(answered_.try_send(true));
}

verge::task<> web_connection::run(std::shared_ptr<web_connection> self) {
  web_connection& me = *self;
  co_await me.converse();
  static_cast<void>(me.conn_.close());
  me.house_.to.submit({self, command(verb::leave)});
}

verge::task<> web_connection::converse() {
  for (;;) {
    if (unread_.empty()) {
      set_read_deadline();
      const auto got = co_await conn_.read_some(in_);
      if (got.error == net_errc::deadline_exceeded && parser_.inside()) {
        const bool sent = co_await send(refuse_http(408, "the request took too long to arrive"),
                                        http::connection::closes, true);
        if (sent) co_await say_goodbye();
        co_return;
      }
      if (got.error) co_return;
      unread_ = {in_.data(), got.bytes};
    }
    const auto [used, what] = parser_.feed(unread_);
    unread_.remove_prefix(used);
    bool stays = true;
    switch (what) {
      case http::step::more:
        break;
      case http::step::expects_continue:
        stays = co_await write("HTTP/1.1 100 Continue\r\n\r\n");
        break;
      case http::step::failed:
        stays = co_await send(refuse_http(parser_.status(), parser_.reason()),
                              http::connection::closes, true);
        if (stays) co_await say_goodbye();
        co_return;
      case http::step::complete:
        stays = co_await serve();
        parser_.next();
        read_deadline_ = deadline::none;
        break;
    }
    if (!stays) co_return;
  }
}

/// Set once for every wait for a request, and once for every request.
void web_connection::set_read_deadline() {
  const auto wanted = parser_.inside() ? deadline::request : deadline::idle;
  if (std::exchange(read_deadline_, wanted) == wanted) return;
  conn_.set_read_deadline(clock::now() +
                          (wanted == deadline::idle ? house_.limits.idle : house_.limits.request));
}

/// Serves the current request. False if it was the last of this connection. What need not wait is
/// no task of its own: most requests wait once, for the broker.
verge::task<bool> web_connection::serve() {
  const auto begin = clock::now();
  const http::request& asked = parser_.current();
  operation op;
  http::response r;
  std::string key;
  route_ = "none";
  if (prepare(op, r, key)) {
    if (op.what == operation::kind::answer) {
      r = std::move(op.ready);
    } else if (op.what == operation::kind::events) {
      r.content_type = "text/event-stream";
    } else {
      submit(op);
      bool in_time = true;
      if (op.waits) {
        co_await wait_and_watch();
      } else if (op.what == operation::kind::probe) {
        const auto which =
            co_await verge::select(recv(answered_), recv(verge::after(house_.limits.probe)));
        in_time = which == 0;
      } else {
        static_cast<void>(co_await recv(answered_));
      }
      r = conclude(op, in_time);
    }
    if (!key.empty()) house_.answers.end(key, r, r.status < 300);
  }
  if (house_.log != nullptr) log(r, begin);
  if (op.what == operation::kind::events && r.status == 200 && asked.method() == "GET") {
    co_await stream_events();
    co_return false;
  }
  // A client that has left is not served what it had sent on: it does not see the answers.
  const bool may_stay = !broken_ && !has_left_ && !house_.stopping.load(std::memory_order_relaxed);
  http::connection after = http::connection_after(asked, may_stay);
  const bool with_body = asked.method() != "HEAD";
  // Nearly always the kernel takes all of it at once, and no task is needed.
  const std::string_view unsent = send_now(std::move(r), after, with_body);
  if (!unsent.empty()) {
    const bool sent = co_await write(unsent);
    if (!sent) co_return false;
  }
  let_go_of_response();
  if (after != http::connection::closes) co_return true;
  co_await say_goodbye();
  co_return false;
}

/// Reads the request. False if the response is known already: it is refused, or it was answered
/// before. `key` is set if its response is to be kept.
bool web_connection::prepare(operation& op, http::response& r, std::string& key) {
  const http::request& asked = parser_.current();
  try {
    if (house_.check_host) check_host(asked, house_.hosts);
    check_origin(asked);
    op = plan(asked, house_.limits.api);
    route_ = op.route;
    std::string caller_id;
    if (house_.door != nullptr) caller_id = admit(op);
    if (!may_repeat(asked)) return true;
    // The keys of one caller are not those of another.
    std::string mine = caller_id + "\n";
    mine.append(asked.header("idempotency-key"));
    if (is_kept_by_broker(op)) {
      op.commands.front().once = std::make_shared<const once_key>(
          once_key{.key = std::move(mine), .print = print_of(asked)});
      return true;
    }
    switch (house_.answers.begin(mine, print_of(asked), r)) {
      case idempotency::found::nothing:
        key = std::move(mine);
        return true;
      case idempotency::found::answer:
        r.headers += "Idempotency-Replayed: true\r\n";
        return false;
      case idempotency::found::other:
        throw refused({.status = 422,
                       .type = "idempotency-mismatch",
                       .detail = "this Idempotency-Key belongs to another request: take a new one "
                                 "for every request, and the same only to send it again"});
      case idempotency::found::busy:
        throw refused({.status = 409,
                       .type = "idempotency-busy",
                       .detail = "the first request with this Idempotency-Key is being done: try "
                                 "again in a moment",
                       .headers = "Retry-After: 1\r\n"});
    }
  } catch (const refused& e) {
    r = response_of(e.what_is_wrong());
  }
  return false;
}

/// Throws `refused` unless the request shows a token that allows it. Returns the token's id.
std::string web_connection::admit(operation& op) {
  if (op.needs == scope::open) return {};
  constexpr std::string_view scheme = "bearer ";
  const std::string_view given = parser_.current().header("authorization");
  const bool is_bearer =
      given.size() > scheme.size() && http::same_name(given.substr(0, scheme.size()), scheme);
  const shared_caller who =
      is_bearer ? house_.door->admit(given.substr(scheme.size()), wall_now()) : nullptr;
  if (who == nullptr) {
    throw refused({.status = 401,
                   .type = "unauthorized",
                   .detail = is_bearer
                                 ? "the token is not known, or revoked, or has expired: ask for one"
                                 : "send Authorization: Bearer and a token of `verge token add`",
                   .headers = "WWW-Authenticate: Bearer\r\n"});
  }
  if (!who->take(clock::now())) {
    throw refused({.status = 429,
                   .type = "too-many-requests",
                   .detail = "this token may send " + std::to_string(who->record().per_second) +
                             " requests a second: wait",
                   .headers = "Retry-After: 1\r\n"});
  }
  const auto forbid = [](const std::string& what) {
    throw refused({.status = 403, .type = "forbidden", .detail = "the token " + what});
  };
  if (!who->may(op.needs)) {
    forbid(std::string("does not have the scope ") + name_of(op.needs) + ", which this needs");
  }
  if (!op.tube.empty() && !who->may_touch(op.tube)) forbid("is not for the tube " + op.tube);
  if (op.of_all_tubes && who->tubes() != nullptr) {
    forbid("is for some tubes, and this is about all of them");
  }
  for (command& c : op.commands) {
    if (!may_give(*who, c)) forbid("is not for the tube that dead tasks are to move to");
  }
  caller_ = who;
  return who->record().id;
}

void web_connection::submit(operation& op) {
  {
    std::lock_guard held(lock_);
    replies_.clear();
    expected_ = op.commands.size();
  }
  auto self = shared_from_this();
  if (op.commands.size() == 1) {
    house_.to.submit({std::move(self), std::move(op.commands.front())});
    return;
  }
  std::vector<request> requests;
  requests.reserve(op.commands.size());
  for (command& c : op.commands) requests.push_back({self, std::move(c)});
  house_.to.submit(requests);
}

http::response web_connection::conclude(const operation& op, bool in_time) {
  // Two vectors that change places: the memory of both stays.
  taken_.clear();
  {
    std::lock_guard held(lock_);
    in_time &= replies_.size() >= expected_;
    expected_ = 0;
    taken_.swap(replies_);
  }
  try {
    if (in_time) {
      const bool replayed = !taken_.empty() && taken_.front().replayed;
      http::response r = op.answer(taken_);
      if (replayed) r.headers += "Idempotency-Replayed: true\r\n";
      return r;
    }
    broken_ = true;
    throw refused({.status = 503,
                   .type = "store-failed",
                   .detail = "the server does not answer: its disk may be stuck"});
  } catch (const refused& e) {
    return response_of(e.what_is_wrong());
  }
}

void web_connection::log(const http::response& r, clock::time_point begin) {
  const std::chrono::duration<double, std::milli> took = clock::now() - begin;
  house_.log->write("request", {{"method", parser_.current().method()},
                                {"route", route_},
                                {"status", std::int64_t{r.status}},
                                {"bytes", static_cast<std::int64_t>(r.body.size())},
                                {"ms", took.count()}});
}

/// Until the client leaves, which a failing write shows, or the server ends. The end of the
/// connection is the end of the stream.
verge::task<> web_connection::stream_events() {
  chan<event_text> events = house_.events->subscribe();
  std::string head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n";
  head.append(always).append("\r\nretry: 2000\n\n");
  bool open = co_await write(head);
  while (open) {
    const std::optional<event_text> next = co_await recv(events);
    if (!next) break;
    // A token that was revoked, or has expired, ends the stream.
    if (house_.door != nullptr && house_.door->again(caller_, wall_now()) == nullptr) break;
    open = co_await write(**next);
  }
  house_.events->forget(events);
}

/// Waits for the replies, and sees meanwhile whether the client leaves.
verge::task<> web_connection::wait_and_watch() {
  // Most are answered at once, and no one has left.
  const auto which = co_await verge::select(recv(answered_), recv(verge::after(soon)));
  if (which == 0) co_return;
  conn_.set_read_deadline(no_deadline);
  auto watching = go(&web_connection::watch, shared_from_this());
  static_cast<void>(co_await recv(answered_));
  watching.cancel();
  try {
    co_await watching;
  } catch (const verge::cancelled&) {
    // The usual end: the client is still there.
  }
}

/// While a reserve waits: until the end of the connection, which ends the wait, or until it is
/// cancelled. Requests that the client sends meanwhile are kept, as far as there is room; what does
/// not fit stays in the socket, and the end behind it is looked for once a second.
verge::task<> web_connection::watch(std::shared_ptr<web_connection> self) {
  web_connection& me = *self;
  std::memmove(me.in_.data(), me.unread_.data(), me.unread_.size());
  me.unread_ = {me.in_.data(), me.unread_.size()};
  while (me.unread_.size() < me.in_.size()) {
    const std::size_t kept = me.unread_.size();
    const auto got = co_await me.conn_.read_some(buffer(&me.in_[kept], me.in_.size() - kept));
    me.unread_ = {me.in_.data(), kept + got.bytes};
    if (got.error) break;
  }
  while (me.unread_.size() == me.in_.size() && !has_ended(me.conn_.native_handle())) {
    co_await sleep(std::chrono::seconds(1));
  }
  me.has_left_ = true;
  me.house_.to.submit({self, command(verb::half_close)});
}

/// Writes what the kernel takes at once. Returns the rest, which is in out_. A response for which
/// there is no memory is another one, and the last.
std::string_view web_connection::send_now(http::response r, http::connection& after,
                                          bool with_body) {
  if (r.body.size() > bytes_per_connection / 2 &&
      !share_.hold(http::memory_share::answer, r.body.size())) {
    r = refuse_http(503, "there is no memory for the response: try again");
    after = http::connection::closes;
  }
  out_.clear();
  http::write_head(out_, r, after, always);
  if (with_body) out_.append(r.body);
  const ssize_t n =
      ::send(conn_.native_handle(), out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return std::string_view(out_).substr(n > 0 ? static_cast<std::size_t>(n) : 0);
}

/// What is small is kept for the next response.
void web_connection::let_go_of_response() noexcept {
  if (out_.capacity() > house_.limits.http.keep_bytes) std::string().swap(out_);
  static_cast<void>(share_.hold(http::memory_share::answer, 0));
}

verge::task<bool> web_connection::send(http::response r, http::connection after, bool with_body) {
  const std::string_view unsent = send_now(std::move(r), after, with_body);
  bool sent = true;
  if (!unsent.empty()) sent = co_await write(unsent);
  let_go_of_response();
  co_return sent;
}

/// The deadline begins anew whenever the client has read something.
verge::task<bool> web_connection::write(std::string_view bytes) {
  while (!bytes.empty()) {
    conn_.set_write_deadline(clock::now() + house_.limits.write);
    const auto [n, error] = co_await conn_.write_some(bytes);
    if (error) co_return false;
    bytes.remove_prefix(n);
  }
  co_return true;
}

/// Closing a socket with unread bytes resets the connection, and the client may not receive what
/// was written last. So the rest is read, for a while.
verge::task<> web_connection::say_goodbye() {
  if (conn_.shutdown_write()) co_return;
  conn_.set_read_deadline(clock::now() + std::chrono::seconds(1));
  for (;;) {
    const auto got = co_await conn_.read_some(in_);
    if (got.error) co_return;
  }
}

}  // namespace verge::server::web
