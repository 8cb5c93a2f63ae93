// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <verge/endpoint.h>
#include <verge/net.h>
#include <verge/runtime.h>

#include "../cluster/node.h"
#include "../doors/gate.h"
#include "../doors/tls.h"
#include "../push/pusher.h"
#include "../store/rocks_store.h"
#include "../web/web_server.h"
#include "connection.h"

/// The task server as a whole: a store, the committer, listeners.
namespace verge::server {

struct server_options {
  endpoint listen{endpoint::loopback(11300)};
  int inherited{-1};  ///< a socket that listens already, instead of `listen`
  std::string directory{"verge-data"};
  bool in_memory{false};     ///< nothing is kept on disk
  std::string database;      ///< the address of PostgreSQL; empty: the directory
  std::uint32_t shards{16};  ///< of a database without tables
  cluster::lease_times leases;
  /// How long an answer of the database is waited for.
  std::chrono::milliseconds database_patience{8'000};
  endpoint peer{endpoint::loopback(0)};  ///< for other servers of the same database
  durability mode{durability::synced};
  broker_options broker;
  connection_limits limits;
  rocks_options rocks;
  std::optional<web::web_options> http;  ///< nothing: no HTTP
  std::optional<tls_options> tls;        ///< for both; nothing: no TLS
  push::push_options push;
  std::string tokens;  ///< the file of tokens; empty: none is asked for
  unsigned processors{0};
};

class task_server {
 public:
  /// Opens the store and listens. Throws store_error, or std::system_error if it cannot listen.
  /// If the store fails later, `on_failure` is called once, with what to say: the server answers
  /// nothing but errors from then on, and is to be stopped.
  explicit task_server(server_options options,
                       std::function<void(const std::string&)> on_failure = {});
  task_server(const task_server&) = delete;
  task_server& operator=(const task_server&) = delete;
  /// As stop().
  ~task_server();

  /// Where it listens.
  endpoint address() const { return address_; }
  /// And where HTTP is served, if it is.
  std::optional<endpoint> http_address() const;
  /// Takes no connections and no commands any more, and answers what was given. The store is
  /// closed by the destructor.
  void stop();
  /// Gives the broker a command, from any thread.
  void submit(std::shared_ptr<client> from, command c);
  /// What the connections of beanstalk's protocol have on its way.
  const connection_house& house() const noexcept { return *house_; }
  const push::push_figures& pushes() const noexcept { return pusher_->figures(); }
  /// Nothing unless the tasks are in a database.
  cluster::membership* members() noexcept { return node_ ? &node_->members() : nullptr; }
  /// No more puts.
  void drain(bool on);
  /// Reads tokens, certificate and key again. Says what could not be used: that stays as it was.
  std::string reload();

 private:
  verge::task<> accept();
  void attend(stream_socket conn, crowd::place place);
  verge::task<> watch_clock();
  void open(std::function<void(const std::string&)> on_failure);
  void open_node();
  command_sink& sink() noexcept;

  server_options options_;
  web::signs signs_;
  std::unique_ptr<gate> gate_;
  std::unique_ptr<tls_door> tls_;
  /// Outlives the committer, which may still hold connections of it.
  std::unique_ptr<web::web_server> web_;
  std::unique_ptr<store> store_;
  std::unique_ptr<committer> committer_;
  std::unique_ptr<connection_house> house_;
  runtime runtime_;
  std::unique_ptr<cluster::node> node_;
  push::push_figures no_pushes_;
  std::unique_ptr<push::pusher> pusher_;
  tcp_listener listener_;
  fd clock_watch_;
  endpoint address_;
  std::mutex lock_;
  std::vector<std::weak_ptr<connection>> connections_;
  std::size_t sweep_at_{64};
  bool finishing_{false};  ///< under lock_: a connection that comes now is finished at once
  join_handle<> committing_;
  join_handle<> accepting_;
  join_handle<> watching_;
  bool stopped_{false};
};

}  // namespace verge::server
