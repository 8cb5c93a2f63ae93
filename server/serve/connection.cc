// SPDX-License-Identifier: Apache-2.0

#include "connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <span>
#include <utility>

#include <verge/time.h>

namespace verge::server {

namespace {

using namespace std::chrono_literals;

/// Most commands are shorter. A connection that has none has no more than this.
constexpr std::size_t read_first = 512;
constexpr std::size_t read_next = 16U << 10;
/// What is read while memory is short: a put of an ordinary body, with its line.
constexpr std::size_t ordinary = beanstalk::default_body_limit + 1024;
/// How often it is looked whether a client has left whose commands are not read.
constexpr auto between_looks = 200ms;

std::size_t weight_of(const command& c) {
  std::size_t bytes = sizeof(request) + c.text.size() + c.tube.size();
  for (const new_task& t : c.tasks) {
    bytes += sizeof t + t.body.size() + t.key.size() + t.dead_letter.size();
  }
  return bytes;
}

}  // namespace

void connection_house::add(std::size_t n) noexcept {
  const std::size_t now = bytes.fetch_add(n, std::memory_order_relaxed) + n;
  std::size_t most = most_bytes.load(std::memory_order_relaxed);
  while (now > most && !most_bytes.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
}

connection::connection(connection_house& house, stream_socket conn, crowd::place place)
    : house_(house), place_(std::move(place)), conn_(std::move(conn)), parser_(house.limits.body) {}

connection::~connection() { house_.subtract(pending_ + input_ + in_parser_); }

void connection::start() {
  go(&connection::read, shared_from_this()).detach();
  go(&connection::write, shared_from_this()).detach();
}

void connection::finish() noexcept { static_cast<void>(conn_.shutdown_read()); }

// ---- Replies ------------------------------------------------------------------------------------

void connection::deliver(reply r) {
  std::lock_guard held(lock_);
  const std::size_t before = out_.size();
  beanstalk::append_reply(out_, r, house_.me);
  const std::size_t grown = out_.size() - before;
  pending_ += grown;
  house_.add(grown);
  if (under_way_.empty()) return;
  house_.subtract(under_way_.front());
  input_ -= under_way_.front();
  under_way_.pop_front();
}

void connection::flush() noexcept {
  send_now();
  bool slow = false;
  bool room = false;
  bool replies = false;
  {
    std::lock_guard held(lock_);
    slow = slow_;
    room = has_room() && std::exchange(wants_room_, false);
    replies = room_for_replies(0) != 0 && std::exchange(wants_replies_, false);
  }
  if (slow) static_cast<void>(to_write_.try_send(true));
  notify(room, replies);
}

/// Tells the tasks that wait for what there is now.
void connection::notify(bool room, bool replies) {
  if (room) static_cast<void>(room_.try_send(true));
  if (replies) house_.to.submit({shared_from_this(), command(verb::go_on)});
}

/// Sends without `lock_`: a client that has its reply sends its next command at once, often before
/// this call returns, and the reading task, which needs that lock, would wait in the kernel.
void connection::send_now() noexcept {
  constexpr int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
  const std::lock_guard alone(sending_);
  {
    std::lock_guard held(lock_);
    if (slow_) return;
    leaving_.swap(out_);
  }
  ssize_t n = std::ssize(leaving_);
  if (!closed_) n = ::send(conn_.native_handle(), leaving_.data(), leaving_.size(), flags);
  std::lock_guard held(lock_);
  if (n > 0) {
    sent(static_cast<std::size_t>(n));
    leaving_.erase(0, static_cast<std::size_t>(n));
  }
  // An idle connection does not keep the room of a large reply.
  if (leaving_.empty() && leaving_.capacity() > read_next) leaving_.shrink_to_fit();
  // Nothing was delivered meanwhile, as the committer does that as well.
  leaving_.swap(out_);
  slow_ = !out_.empty();
}

/// Under the lock.
void connection::sent(std::size_t bytes) noexcept {
  pending_ -= bytes;
  house_.subtract(bytes);
}

/// Under the lock. What a closed connection is told is dropped.
std::size_t connection::room_for_replies(std::size_t said) const noexcept {
  if (closed_) return most_admitted;
  const std::size_t mine = pending_ + said;
  if (house_.is_short_of_memory()) return mine == 0 ? 1 : 0;
  return mine < house_.limits.output ? house_.limits.output - mine : 0;
}

std::size_t connection::admits(std::size_t said) noexcept {
  std::lock_guard held(lock_);
  const std::size_t room = room_for_replies(said);
  if (room == 0) wants_replies_ = true;
  return room;
}

void connection::close() noexcept {
  const std::scoped_lock held(sending_, lock_);
  if (!std::exchange(closed_, true)) static_cast<void>(conn_.close());
}

void connection::left() noexcept {
  {
    std::lock_guard held(lock_);
    left_ = true;
  }
  static_cast<void>(to_write_.try_send(true));
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
        taken = std::exchange(me.out_, {});
        if (taken.empty()) {
          me.slow_ = false;
          last = me.left_;
          break;
        }
        me.slow_ = true;
      }
      const auto result = co_await me.conn_.write_all(taken);
      if (!result) me.close();
      bool room = false;
      bool replies = false;
      {
        std::lock_guard held(me.lock_);
        me.sent(taken.size());
        room = me.has_room() && std::exchange(me.wants_room_, false);
        replies = me.room_for_replies(0) != 0 && std::exchange(me.wants_replies_, false);
      }
      me.notify(room, replies);
    }
  }
  me.close();
  static_cast<void>(me.room_.try_send(true));
}

// ---- Commands -----------------------------------------------------------------------------------

/// Under the lock. A closed connection has room: its reading task finds that it is closed.
bool connection::has_room() const noexcept {
  if (closed_) return true;
  if (house_.is_short_of_memory()) return under_way_.empty() && pending_ == 0;
  return under_way_.size() < house_.limits.under_way && input_ < house_.limits.input &&
         pending_ < house_.limits.output;
}

/// Whether the client will send no more. What it has sent before may not have been read.
bool connection::has_peer_finished() noexcept {
  std::lock_guard held(lock_);
  if (closed_) return false;
  pollfd p{.fd = conn_.native_handle(), .events = POLLRDHUP, .revents = 0};
  return ::poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

verge::task<> connection::wait_for_room() {
  for (;;) {
    {
      std::lock_guard held(lock_);
      if (has_room()) co_return;
      wants_room_ = true;
    }
    // A reserve may wait with many commands behind it, and its client may leave meanwhile.
    if (!half_closed_ && has_peer_finished()) {
      half_closed_ = true;
      house_.to.submit({shared_from_this(), command(verb::half_close)});
    }
    const timer look = after_func(between_looks, [self = shared_from_this()] {
      static_cast<void>(self->room_.try_send(true));
    });
    static_cast<void>(co_await recv(room_));
  }
}

verge::task<> connection::read(std::shared_ptr<connection> self) {
  connection& me = *self;
  me.house_.to.submit({self, command(verb::arrive)});
  std::array<char, read_first> few;
  std::vector<char> many;
  std::vector<request> requests;
  for (;;) {
    const std::span<char> into = many.empty() ? std::span<char>(few) : std::span<char>(many);
    auto [n, error] = co_await me.conn_.read_some(into);
    if (error) {
      const bool end = error == net_errc::end_of_stream;
      if (end && !me.half_closed_) me.house_.to.submit({self, command(verb::half_close)});
      me.house_.to.submit({self, command(verb::leave)});
      co_return;
    }
    me.parser_.feed(std::string_view(into.data(), n));
    while (me.parse(requests)) {
      if (!me.submit(requests)) co_await me.wait_for_room();
    }
    if (n == into.size()) {
      many.resize(read_next);  // there is more, most likely
    } else if (n <= few.size()) {
      many = {};
    }
  }
}

/// The commands that have come, as many as may be submitted together. False if there is none.
bool connection::parse(std::vector<request>& requests) {
  const std::size_t most = house_.is_short_of_memory() ? 1 : house_.limits.under_way;
  while (requests.size() < most) {
    auto c = parser_.next();
    if (!c) break;
    if (house_.door != nullptr) pass(*house_.door, caller_, *c);
    requests.push_back({shared_from_this(), std::move(*c)});
  }
  count_parser();
  if (house_.is_short_of_memory() && in_parser_ > ordinary) {
    parser_.refuse();
    count_parser();
  }
  return !requests.empty();
}

void connection::count_parser() noexcept {
  const std::size_t now = parser_.weight();
  house_.add(now);
  house_.subtract(std::exchange(in_parser_, now));
}

/// False if no more may be read for now.
bool connection::submit(std::vector<request>& requests) {
  bool room = false;
  {
    std::lock_guard held(lock_);
    for (const request& r : requests) {
      under_way_.push_back(weight_of(r.what));
      input_ += under_way_.back();
      house_.add(under_way_.back());
    }
    room = has_room();
  }
  house_.to.submit(requests);
  constexpr std::size_t most_kept = 8;  // commands are large
  requests.clear();
  if (requests.capacity() > most_kept) requests.shrink_to_fit();
  return room;
}

}  // namespace verge::server
