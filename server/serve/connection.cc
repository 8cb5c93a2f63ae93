#include "connection.h"

#include <sys/socket.h>

#include <chrono>
#include <utility>
#include <vector>

#include <verge/time.h>

namespace verge::server {

namespace {

constexpr std::size_t read_at_once = 16U << 10;

}  // namespace

connection::connection(connection_house& house, stream_socket conn, crowd::place place)
    : house_(house), place_(std::move(place)), conn_(std::move(conn)), parser_(house.limits.body) {}

connection::~connection() { house_.bytes.fetch_sub(pending_); }

void connection::start() {
  go(&connection::read, shared_from_this()).detach();
  go(&connection::write, shared_from_this()).detach();
}

void connection::finish() noexcept { static_cast<void>(conn_.shutdown_read()); }

void connection::deliver(reply r) {
  std::lock_guard held(lock_);
  const std::size_t before = out_.size();
  beanstalk::append_reply(out_, r, house_.me);
  const std::size_t grown = out_.size() - before;
  pending_ += grown;
  house_.bytes.fetch_add(grown, std::memory_order_relaxed);
  --under_way_;
}

void connection::flush() noexcept {
  bool slow = false;
  bool room = false;
  {
    std::lock_guard held(lock_);
    if (!slow_) send_now();
    slow = slow_;
    room = has_room() && std::exchange(wants_room_, false);
  }
  if (slow) static_cast<void>(to_write_.try_send(true));
  if (room) static_cast<void>(room_.try_send(true));
}

/// Under the lock.
void connection::send_now() noexcept {
  constexpr int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
  ssize_t n = std::ssize(out_);
  if (!closed_) n = ::send(conn_.native_handle(), out_.data(), out_.size(), flags);
  if (n > 0) {
    sent(static_cast<std::size_t>(n));
    out_.erase(0, static_cast<std::size_t>(n));
  }
  slow_ = !out_.empty();
}

/// Under the lock.
void connection::sent(std::size_t bytes) noexcept {
  pending_ -= bytes;
  house_.bytes.fetch_sub(bytes, std::memory_order_relaxed);
}

void connection::close() noexcept {
  std::lock_guard held(lock_);
  if (!std::exchange(closed_, true)) static_cast<void>(conn_.close());
}

void connection::left() noexcept {
  {
    std::lock_guard held(lock_);
    left_ = true;
  }
  static_cast<void>(to_write_.try_send(true));
}

/// Under the lock. A closed connection has room: its reading task finds that it is closed.
bool connection::has_room() const noexcept {
  if (closed_) return true;
  return under_way_ < house_.limits.under_way && pending_ < house_.limits.output;
}

verge::task<> connection::wait_for_room() {
  using namespace std::chrono_literals;
  for (;;) {
    {
      std::lock_guard held(lock_);
      if (has_room()) break;
      wants_room_ = true;
    }
    static_cast<void>(co_await recv(room_));
  }
  // All connections wait: for the committer, and for the clients that read.
  while (house_.bytes.load(std::memory_order_relaxed) >= house_.limits.memory) co_await sleep(5ms);
}

verge::task<> connection::read(std::shared_ptr<connection> self) {
  connection& me = *self;
  me.house_.to.submit({self, command(verb::arrive)});
  std::vector<request> requests;
  std::vector<char> bytes(read_at_once);
  for (;;) {
    auto [n, error] = co_await me.conn_.read_some(bytes);
    if (error) {
      const bool end = error == net_errc::end_of_stream;
      if (end) me.house_.to.submit({self, command(verb::half_close)});
      me.house_.to.submit({self, command(verb::leave)});
      co_return;
    }
    me.parser_.feed(std::string_view(bytes.data(), n));
    while (auto c = me.parser_.next()) {
      if (me.house_.door != nullptr) pass(*me.house_.door, me.caller_, *c);
      requests.push_back({self, std::move(*c)});
      if (requests.size() < me.house_.limits.under_way) continue;
      me.submit(requests);
      co_await me.wait_for_room();
    }
    if (requests.empty()) continue;
    me.submit(requests);
    co_await me.wait_for_room();
  }
}

void connection::submit(std::vector<request>& requests) {
  {
    std::lock_guard held(lock_);
    under_way_ += requests.size();
  }
  house_.to.submit(requests);
  requests.clear();
}

/// Writes what the socket did not take at once, and closes it at the end.
verge::task<> connection::write(std::shared_ptr<connection> self) {
  connection& me = *self;
  std::string taken;
  for (bool last = false; !last;) {
    static_cast<void>(co_await recv(me.to_write_));
    for (;;) {
      {
        std::lock_guard held(me.lock_);
        taken.clear();
        taken.swap(me.out_);
        if (taken.empty()) {
          me.slow_ = false;
          last = me.left_;
          break;
        }
        me.slow_ = true;
      }
      const auto result = co_await me.conn_.write_all(taken);
      bool room = false;
      {
        std::lock_guard held(me.lock_);
        me.sent(taken.size());
        room = me.has_room() && std::exchange(me.wants_room_, false);
      }
      if (room) static_cast<void>(me.room_.try_send(true));
      if (!result) me.close();
    }
  }
  me.close();
  static_cast<void>(me.room_.try_send(true));
}

}  // namespace verge::server
