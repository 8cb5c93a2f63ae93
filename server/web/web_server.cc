// SPDX-License-Identifier: Apache-2.0

#include "web_server.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <verge/time.h>

namespace verge::server::web {

web_server::web_server(runtime& rt, command_sink& to, const web_options& options)
    : house_(to, options.limits), tls_(options.tls) {
  house_.hosts = options.hosts;
  house_.check_host = options.only_loopback;
  house_.log = options.log;
  house_.door = options.door;
  rt.run([&]() -> verge::task<> {
    listener_ = options.inherited >= 0 ? tcp_listener::adopt(options.inherited).or_throw()
                                       : tcp_listener::listen(options.listen).or_throw();
    address_ = listener_.local().or_throw();
    co_return;
  });
  accepting_ = rt.spawn([this] { return accept(); });
  telling_ = rt.spawn([this] { return event_source::run(house_.events); });
}

verge::task<> web_server::accept() {
  for (;;) {
    auto [conn, error] = co_await listener_.accept();
    if (error == net_errc::closed) co_return;
    if (error) {
      co_await sleep(std::chrono::milliseconds(100));
      continue;
    }
    // One more than allowed is closed at once: the client sees the end of the stream.
    crowd::place place = house_.clients.enter();
    if (!place) continue;
    if (tls_ == nullptr) {
      attend(std::move(conn), std::move(place));
    } else {
      tls_->take(std::move(conn), house_.clients, std::move(place),
                 [this](stream_socket plain, crowd::place held) {
                   attend(std::move(plain), std::move(held));
                 });
    }
  }
}

void web_server::attend(stream_socket conn, crowd::place place) {
  auto made = std::make_shared<web_connection>(house_, std::move(conn), std::move(place));
  {
    std::lock_guard held(lock_);
    if (connections_.size() >= sweep_at_) {
      std::erase_if(connections_, [](const auto& c) { return c.expired(); });
      sweep_at_ = std::max<std::size_t>(64, 2 * connections_.size());
    }
    connections_.push_back(made);
    if (house_.stopping.load()) made->finish();
  }
  made->start();
}

void web_server::close() {
  if (std::exchange(closed_, true)) return;
  house_.stopping.store(true);
  static_cast<void>(listener_.close());
  accepting_.join();
  house_.events->stop();
  telling_.join();
  house_.clients.dismiss();
  std::lock_guard held(lock_);
  for (const auto& weak : connections_) {
    if (const auto c = weak.lock()) c->finish();
  }
}

}  // namespace verge::server::web
