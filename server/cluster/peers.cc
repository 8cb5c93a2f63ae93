// SPDX-License-Identifier: Apache-2.0

#include "peers.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include <verge/time.h>

namespace verge::server::cluster {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t read_at_once = 64U << 10;

std::string greeting(const std::string& secret) {
  return std::to_string(frame_version) + " " + secret;
}

}  // namespace

/// What both ends have: bytes to be sent, and a task that sends them.
class frame_writer {
 public:
  void send(const frame& f) {
    {
      std::lock_guard held(lock_);
      if (closed_) return;
      append(out_, f);
    }
    static_cast<void>(woken_.try_send(true));
  }
  void close() {
    {
      std::lock_guard held(lock_);
      closed_ = true;
    }
    static_cast<void>(woken_.try_send(true));
  }
  /// Until close(), or until the connection fails.
  verge::task<> run(tcp_conn& to) {
    std::string taken;
    for (;;) {
      bool end = false;
      {
        std::lock_guard held(lock_);
        taken.clear();
        taken.swap(out_);
        end = closed_;
      }
      if (!taken.empty()) {
        const auto sent = co_await to.write_all(taken);
        if (!sent) co_return;
        continue;
      }
      if (end) co_return;
      static_cast<void>(co_await recv(woken_));
    }
  }

 private:
  std::mutex lock_;
  std::string out_;
  bool closed_{false};
  chan<bool> woken_{1};
};

/// Reads frames and passes them on, until the connection ends. False if it was not a server of
/// ours.
template <class Each>
verge::task<> read_frames(tcp_conn& from, Each each) {
  std::vector<char> bytes(read_at_once);
  std::string in;
  for (;;) {
    const auto got = co_await from.read_some(bytes);
    if (!got) co_return;
    in.append(bytes.data(), got.bytes);
    std::string_view left = in;
    try {
      frame f;
      while (take(left, f)) {
        if (!each(f)) co_return;
      }
    } catch (const std::exception&) {
      co_return;
    }
    in.erase(0, in.size() - left.size());
  }
}

/// A connection to another server.
class peer_link : public std::enable_shared_from_this<peer_link> {
 public:
  peer_link(std::string address, const std::string& secret) : address_(std::move(address)) {
    frame hello;
    hello.kind = frame_kind::hello;
    hello.text = greeting(secret);
    writer_.send(hello);
  }

  bool is_lost() {
    std::lock_guard held(lock_);
    return lost_;
  }

  static verge::task<> run(std::shared_ptr<peer_link> self) {
    bool reached = false;
    const auto [at, wrong] = endpoint::parse(self->address_);
    if (!wrong) {
      auto [conn, error] = co_await tcp_conn::connect(at, 3s);
      if (!error) {
        static_cast<void>(conn.set_no_delay(true));
        static_cast<void>(conn.set_keep_alive(true));
        self->set_conn(std::move(conn));
        reached = true;
        join_handle<> writing = go(&peer_link::write, self);
        co_await read_frames(self->conn_, [&self](frame& f) { return self->take_frame(f); });
        self->writer_.close();
        static_cast<void>(self->conn_.close());
        co_await writing;
      }
    }
    self->lose(reached);
  }
  void stop() {
    std::lock_guard held(lock_);
    stopped_ = true;
    if (conn_) static_cast<void>(conn_.close());
  }

  std::uint64_t open(std::uint32_t shard, std::uint64_t number, std::weak_ptr<lane_listener> to) {
    frame f;
    f.kind = frame_kind::open;
    f.shard = shard;
    std::lock_guard held(lock_);
    f.lane = next_++;
    lanes_[f.lane] = {.number = number, .to = std::move(to), .under_way = {}};
    if (!lost_) writer_.send(f);
    return f.lane;
  }
  void submit(std::uint64_t lane, command c) {
    const bool silent = is_silent(c.what);
    std::unique_lock held(lock_);
    const auto found = lanes_.find(lane);
    if (found == lanes_.end()) return;
    if (lost_) {
      const std::uint64_t number = found->second.number;
      const auto to = found->second.to.lock();
      held.unlock();
      if (to == nullptr || silent) return;
      to->heard(number, lost_reply(verb::peek));
      to->heard_all();
      return;
    }
    if (!silent) found->second.under_way.push_back(c.what);
    frame f;
    f.kind = frame_kind::command;
    f.lane = lane;
    f.what = std::move(c);
    writer_.send(f);
  }
  void close(std::uint64_t lane) {
    std::lock_guard held(lock_);
    lanes_.erase(lane);
    if (lost_) return;
    frame f;
    f.kind = frame_kind::close;
    f.lane = lane;
    writer_.send(f);
  }
  void tell_to_look() { writer_.send({}); }

 private:
  struct way {
    std::uint64_t number{0};
    std::weak_ptr<lane_listener> to;
    std::deque<verb> under_way;
  };

  static verge::task<> write(std::shared_ptr<peer_link> self) {
    co_await self->writer_.run(self->conn_);
    static_cast<void>(self->conn_.close());
  }

  void set_conn(tcp_conn conn) {
    std::lock_guard held(lock_);
    conn_ = std::move(conn);
    if (stopped_) static_cast<void>(conn_.close());
  }

  bool take_frame(frame& f) {
    if (f.kind != frame_kind::reply) return false;
    std::shared_ptr<lane_listener> to;
    std::uint64_t number = 0;
    {
      std::lock_guard held(lock_);
      const auto found = lanes_.find(f.lane);
      if (found == lanes_.end()) return true;
      if (!found->second.under_way.empty()) found->second.under_way.pop_front();
      to = found->second.to.lock();
      number = found->second.number;
    }
    if (to == nullptr) return true;
    to->heard(number, std::move(f.said));
    to->heard_all();
    return true;
  }

  static reply lost_reply(verb v) {
    reply r;
    r.what = is_repeatable(v) ? answer::moved : answer::internal_error;
    r.text =
        "the server that has the tube was lost before it answered: whether the command was "
        "executed is not known";
    return r;
  }

  /// What could not be sent at all was not executed.
  void lose(bool reached) {
    std::vector<
        std::pair<std::shared_ptr<lane_listener>, std::vector<std::pair<std::uint64_t, reply>>>>
        told;
    {
      std::lock_guard held(lock_);
      lost_ = true;
      for (auto& [lane, w] : lanes_) {
        auto to = w.to.lock();
        if (to == nullptr) continue;
        std::vector<std::pair<std::uint64_t, reply>> replies;
        for (const verb v : w.under_way) {
          replies.emplace_back(w.number, lost_reply(reached ? v : verb::peek));
        }
        w.under_way.clear();
        told.emplace_back(std::move(to), std::move(replies));
      }
    }
    for (auto& [to, replies] : told) {
      for (auto& [number, r] : replies) to->heard(number, std::move(r));
      to->heard_all();
    }
  }

  const std::string address_;
  frame_writer writer_;
  tcp_conn conn_;
  std::mutex lock_;
  std::map<std::uint64_t, way> lanes_;
  std::uint64_t next_{1};
  bool lost_{false};
  bool stopped_{false};
};

namespace {

class remote_lane final : public lane {
 public:
  remote_lane(std::shared_ptr<peer_link> over, std::uint64_t number)
      : over_(std::move(over)), number_(number) {}
  ~remote_lane() override { over_->close(number_); }
  void submit(command c) override { over_->submit(number_, std::move(c)); }

 private:
  const std::shared_ptr<peer_link> over_;
  const std::uint64_t number_;
};

}  // namespace

/// A connection from another server: its lanes end here.
class guest final : public lane_listener, public std::enable_shared_from_this<guest> {
 public:
  guest(tcp_conn conn, std::string greeting, peers::callbacks ask)
      : conn_(std::move(conn)), greeting_(std::move(greeting)), ask_(std::move(ask)) {}

  static verge::task<> run(std::shared_ptr<guest> self) {
    join_handle<> writing = go(&guest::write, self);
    co_await read_frames(self->conn_, [&self](frame& f) { return self->take_frame(f); });
    self->writer_.close();
    static_cast<void>(self->conn_.close());
    co_await writing;
    self->lanes_.clear();
  }
  void stop() noexcept { static_cast<void>(conn_.close()); }

  void heard(std::uint64_t lane, reply r) override {
    frame f;
    f.kind = frame_kind::reply;
    f.lane = lane;
    f.said = std::move(r);
    writer_.send(f);
  }
  void heard_all() noexcept override {}

 private:
  static verge::task<> write(std::shared_ptr<guest> self) {
    co_await self->writer_.run(self->conn_);
    static_cast<void>(self->conn_.close());
  }

  /// The reading task alone has the lanes.
  bool take_frame(frame& f) {
    if (!greeted_) {
      greeted_ = f.kind == frame_kind::hello && f.text == greeting_;
      return greeted_;
    }
    switch (f.kind) {
      case frame_kind::open: {
        const auto service = ask_.local(static_cast<std::uint32_t>(f.shard));
        // Without one all commands are answered below: this server does not have the shard.
        lanes_[f.lane] =
            service == nullptr ? nullptr : service->open_lane(f.lane, weak_from_this());
        return true;
      }
      case frame_kind::command: {
        const auto found = lanes_.find(f.lane);
        if (found == lanes_.end()) return false;
        if (found->second != nullptr) {
          found->second->submit(std::move(f.what));
        } else if (!is_silent(f.what.what)) {
          reply r;
          r.what = answer::moved;
          heard(f.lane, std::move(r));
        }
        return true;
      }
      case frame_kind::close:
        lanes_.erase(f.lane);
        return true;
      case frame_kind::look:
        ask_.look();
        return true;
      case frame_kind::hello:
      case frame_kind::reply:
        break;
    }
    return false;
  }

  tcp_conn conn_;
  const std::string greeting_;
  const peers::callbacks ask_;
  frame_writer writer_;
  std::map<std::uint64_t, std::unique_ptr<lane>> lanes_;
  bool greeted_{false};
};

peers::peers(runtime& rt, const endpoint& listen, std::string secret, callbacks ask)
    : runtime_(rt), secret_(std::move(secret)), ask_(std::move(ask)) {
  runtime_.run([this, &listen]() -> verge::task<> {
    listener_ = tcp_listener::listen(listen).or_throw();
    address_ = listener_.local().or_throw();
    co_return;
  });
}

void peers::start() {
  accepting_ = runtime_.spawn([this] { return accept(); });
}

verge::task<> peers::accept() {
  for (;;) {
    auto [conn, error] = co_await listener_.accept();
    if (error == net_errc::closed) co_return;
    if (error) {
      co_await sleep(100ms);
      continue;
    }
    static_cast<void>(conn.set_no_delay(true));
    const auto made = std::make_shared<guest>(std::move(conn), greeting(secret_), ask_);
    {
      std::lock_guard held(lock_);
      std::erase_if(guests_, [](const auto& g) { return g.expired(); });
      guests_.push_back(made);
      if (stopped_) made->stop();
    }
    go(&guest::run, made).detach();
  }
}

void peers::stop() {
  {
    std::lock_guard held(lock_);
    if (std::exchange(stopped_, true)) return;
    for (const auto& weak : guests_) {
      if (const auto g = weak.lock()) g->stop();
    }
    for (auto& [address, l] : links_) l->stop();
  }
  static_cast<void>(listener_.close());
  if (accepting_) accepting_.join();
}

std::shared_ptr<peer_link> peers::link_to(const std::string& address) {
  std::lock_guard held(lock_);
  std::shared_ptr<peer_link>& l = links_[address];
  if (l != nullptr && !l->is_lost()) return l;
  l = std::make_shared<peer_link>(address, secret_);
  if (stopped_) l->stop();
  go(runtime_, &peer_link::run, l).detach();
  return l;
}

std::unique_ptr<lane> peers::open_lane(const std::string& address, std::uint32_t shard,
                                       std::uint64_t number, std::weak_ptr<lane_listener> to) {
  std::shared_ptr<peer_link> l = link_to(address);
  const std::uint64_t lane = l->open(shard, number, std::move(to));
  return std::make_unique<remote_lane>(std::move(l), lane);
}

void peers::tell_to_look(const std::vector<std::string>& addresses) {
  for (const std::string& a : addresses) link_to(a)->tell_to_look();
}

}  // namespace verge::server::cluster
