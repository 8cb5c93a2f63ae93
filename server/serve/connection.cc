#include "connection.h"

#include <chrono>
#include <utility>
#include <vector>

#include <verge/time.h>

namespace verge::server {

namespace {

constexpr std::size_t read_at_once = 16U << 10;

}  // namespace

connection::connection(connection_house& house, stream_socket conn)
    : house_(house), conn_(std::move(conn)), parser_(house.limits.body) {
  house_.open.fetch_add(1);
}

connection::~connection() {
  house_.bytes.fetch_sub(counted_);
  house_.open.fetch_sub(1);
}

void connection::start() {
  go(&connection::read, shared_from_this()).detach();
  go(&connection::write, shared_from_this()).detach();
}

void connection::finish() noexcept { static_cast<void>(conn_.shutdown_read()); }

void connection::deliver(reply r) {
  std::lock_guard held(lock_);
  const std::size_t before = out_.size();
  beanstalk::append_reply(out_, r, house_.me);
  out_bytes_.store(out_.size(), std::memory_order_relaxed);
  house_.bytes.fetch_add(out_.size() - before, std::memory_order_relaxed);
  counted_ += out_.size() - before;
  under_way_.fetch_sub(1, std::memory_order_relaxed);
}

void connection::flush() noexcept { static_cast<void>(to_write_.try_send(true)); }

void connection::left() noexcept {
  {
    std::lock_guard held(lock_);
    left_ = true;
  }
  flush();
}

verge::task<> connection::wait_for_room() {
  using namespace std::chrono_literals;
  while (under_way_.load(std::memory_order_relaxed) >= house_.limits.under_way ||
         out_bytes_.load(std::memory_order_relaxed) >= house_.limits.output) {
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
      me.under_way_.fetch_add(1, std::memory_order_relaxed);
      requests.push_back({self, std::move(*c)});
      if (me.under_way_.load(std::memory_order_relaxed) < me.house_.limits.under_way) continue;
      me.house_.to.submit(std::exchange(requests, {}));
      co_await me.wait_for_room();
    }
    if (!requests.empty()) me.house_.to.submit(std::exchange(requests, {}));
    co_await me.wait_for_room();
  }
}

verge::task<> connection::write(std::shared_ptr<connection> self) {
  connection& me = *self;
  std::string sent;
  for (;;) {
    static_cast<void>(co_await recv(me.to_write_));
    bool last = false;
    {
      std::lock_guard held(me.lock_);
      sent.clear();
      sent.swap(me.out_);
      last = me.left_;
    }
    if (!sent.empty()) {
      const auto result = co_await me.conn_.write_all(sent);
      {
        std::lock_guard held(me.lock_);
        me.house_.bytes.fetch_sub(sent.size(), std::memory_order_relaxed);
        me.counted_ -= sent.size();
        me.out_bytes_.store(me.out_.size(), std::memory_order_relaxed);
      }
      static_cast<void>(me.room_.try_send(true));
      if (!result) {
        static_cast<void>(me.conn_.close());
        if (!last) continue;
      }
    } else {
      static_cast<void>(me.room_.try_send(true));
    }
    if (last) break;
  }
  static_cast<void>(me.conn_.close());
  static_cast<void>(me.room_.try_send(true));
}

}  // namespace verge::server
