// SPDX-License-Identifier: Apache-2.0

#include "server.h"

#include <sys/timerfd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include <verge/time.h>

namespace verge::server {

namespace {

using namespace std::chrono_literals;

std::unique_ptr<store> open_store(const server_options& o) {
  if (o.in_memory) return make_memory_store();
  rocks_options rocks = o.rocks;
  rocks.directory = o.directory;
  rocks.mode = o.mode;
  return open_rocks_store(rocks);
}

/// A timer that never fires, and becomes readable when the wall clock is set.
int make_clock_watch() {
  const int number = ::timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC);
  if (number < 0) throw std::system_error(errno, std::generic_category(), "timerfd_create");
  return number;
}

void arm_clock_watch(int number) {
  itimerspec never{};
  never.it_value.tv_sec = std::numeric_limits<time_t>::max();
  ::timerfd_settime(number, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &never, nullptr);
}

}  // namespace

task_server::task_server(server_options options, std::function<void(const std::string&)> on_failure)
    : options_(std::move(options)), runtime_({.processors = options_.processors}) {
  if (options_.database.empty()) {
    open(std::move(on_failure));
  } else {
    open_node();
  }
  command_sink& to = sink();
  // An aggregate that cannot be moved.
  house_.reset(new connection_house{// NOLINT(modernize-make-unique)
                                    .to = to,
                                    .limits = options_.limits,
                                    .me = beanstalk::identify(options_.limits.body)});
  if (!options_.tokens.empty()) gate_ = std::make_unique<gate>(options_.tokens);
  if (options_.tls) tls_ = std::make_unique<tls_door>(*options_.tls);
  house_->door = gate_.get();
  runtime_.run([this]() -> verge::task<> {
    listener_ = options_.inherited >= 0 ? tcp_listener::adopt(options_.inherited).or_throw()
                                        : tcp_listener::listen(options_.listen).or_throw();
    address_ = listener_.local().or_throw();
    clock_watch_ = fd::adopt(make_clock_watch()).or_throw();
    co_return;
  });
  signs_.push = &no_pushes_;
  if (committer_ != nullptr) {
    pusher_ = std::make_unique<push::pusher>(runtime_, *committer_, options_.push);
    signs_.push = &pusher_->figures();
  }
  if (options_.http) {
    web::api_settings& api = options_.http->limits.api;
    api.condition = &signs_;
    if (!options_.in_memory && node_ == nullptr) api.disk = options_.directory;
    options_.http->door = gate_.get();
    options_.http->tls = tls_.get();
    web_ = std::make_unique<web::web_server>(runtime_, to, *options_.http);
  }
  if (committer_ != nullptr) {
    committing_ = runtime_.spawn([this] { return committer_->run(); });
  } else {
    node_->start(address_.to_string(), web_ != nullptr ? web_->address().to_string() : "");
  }
  accepting_ = runtime_.spawn([this] { return accept(); });
  watching_ = runtime_.spawn([this] { return watch_clock(); });
}

task_server::~task_server() { stop(); }

void task_server::open(std::function<void(const std::string&)> on_failure) {
  store_ = open_store(options_);
  committer_ = std::make_unique<committer>(*store_, options_.broker);
  committer_->on_failure = [this, told = std::move(on_failure)](const std::string& why) {
    signs_.failed.store(true);
    if (told) told(why);
  };
}

/// A database that fails does not end the server: it takes its shards again when it can.
void task_server::open_node() {
  cluster::node_options o;
  o.member.database = {.url = options_.database,
                       .patience = options_.database_patience,
                       .must_sync = options_.mode == durability::synced};
  o.member.shards = options_.shards;
  o.member.times = options_.leases;
  o.member.broker = options_.broker;
  o.member.push = options_.push;
  o.peer = options_.peer;
  node_ = std::make_unique<cluster::node>(runtime_, std::move(o));
}

command_sink& task_server::sink() noexcept {
  if (node_ != nullptr) return node_->sink();
  return *committer_;
}

std::optional<endpoint> task_server::http_address() const {
  if (web_ == nullptr) return std::nullopt;
  return web_->address();
}

void task_server::drain(bool on) {
  /// A client without a connection: it only passes the command on.
  class messenger final : public client {
    void deliver(reply) override {}
    void flush() noexcept override {}
    void left() noexcept override {}
  };
  const auto from = std::make_shared<messenger>();
  sink().submit({from, command(verb::drain, on ? 1U : 0U)});
  sink().submit({from, command(verb::leave)});
}

void task_server::submit(std::shared_ptr<client> from, command c) {
  sink().submit({std::move(from), std::move(c)});
}

verge::task<> task_server::accept() {
  for (;;) {
    auto [conn, error] = co_await listener_.accept();
    if (error == net_errc::closed) co_return;
    if (error) {
      co_await sleep(100ms);
      continue;
    }
    // One more than allowed is closed at once: the client sees the end of the stream.
    crowd::place place = house_->clients.enter();
    if (!place) continue;
    if (tls_ == nullptr) {
      attend(std::move(conn), std::move(place));
    } else {
      tls_->take(std::move(conn), house_->clients, std::move(place),
                 [this](stream_socket plain, crowd::place held) {
                   attend(std::move(plain), std::move(held));
                 });
    }
  }
}

void task_server::attend(stream_socket conn, crowd::place place) {
  auto made = std::make_shared<connection>(*house_, std::move(conn), std::move(place));
  {
    std::lock_guard held(lock_);
    if (connections_.size() >= sweep_at_) {
      std::erase_if(connections_, [](const auto& c) { return c.expired(); });
      sweep_at_ = std::max<std::size_t>(64, 2 * connections_.size());
    }
    connections_.push_back(made);
    if (finishing_) made->finish();
  }
  made->start();
}

std::string task_server::reload() {
  std::string faults;
  std::string why;
  if (gate_ != nullptr && !gate_->reload(why)) faults = why;
  if (tls_ != nullptr && !tls_->reload(why)) faults.append(faults.empty() ? "" : "; ").append(why);
  return faults;
}

verge::task<> task_server::watch_clock() {
  for (;;) {
    arm_clock_watch(clock_watch_.native_handle());
    const auto error = co_await clock_watch_.readable();
    if (error) co_return;
    std::uint64_t ignored = 0;
    static_cast<void>(!::read(clock_watch_.native_handle(), &ignored, sizeof ignored));
    signs_.last_clock_step.store(wall_now());
    signs_.clock_steps.fetch_add(1);
    if (node_ != nullptr) {
      node_->members().clock_stepped();
    } else {
      committer_->clock_stepped();
    }
  }
}

void task_server::stop() {
  if (std::exchange(stopped_, true)) return;
  // The other servers have the tasks before clients are waited for.
  if (node_ != nullptr) node_->leave();
  static_cast<void>(listener_.close());
  static_cast<void>(clock_watch_.close());
  if (web_ != nullptr) web_->close();
  accepting_.join();
  watching_.join();
  house_->clients.dismiss();
  {
    std::lock_guard held(lock_);
    finishing_ = true;
    for (const auto& weak : connections_) {
      if (const auto c = weak.lock()) c->finish();
    }
  }
  // A client that does not take its replies does not keep the server from ending.
  const auto open = [this] {
    return house_->clients.count() + (web_ != nullptr ? web_->open() : 0);
  };
  for (int i = 0; i < 500 && open() != 0; ++i) std::this_thread::sleep_for(10ms);
  if (node_ != nullptr) return node_->stop();
  pusher_->stop();
  committer_->stop();
  committing_.join();
}

}  // namespace verge::server
