// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <verge/runtime.h>
#include <verge/task.h>

#include "../broker/committer.h"
#include "delivery.h"
#include "figures.h"
#include "hosts.h"
#include "inbox.h"
#include "places.h"
#include "resolver.h"

/// The pusher: sends tasks of tubes that have a receiver, when they are due.
///
///   broker --- settings ---> follow()        one task: a feed for each tube that is pushed
///          --- tasks ------> feed            one task each: reserves as many as may be under way
///                              |
///                            send()          one task for each delivery: POST, then ack or not
///
/// It has no rules of its own: how often and when a task is tried again is the broker's to say. A
/// task is leased while it is sent. What hangs holds its lease and its place among the receiver's
/// deliveries; its place among those of the tube it gives up (places.h).
///
/// Ground rules: `feeds_` belongs to the task in follow(). What a feed shares with its deliveries
/// is atomic, or under `lock_`, as are the handles of the deliveries. The results of deliveries go
/// to the broker through `clerk_`, because a feed that waits for a task cannot say anything.
namespace verge::server::push {

struct push_house;

struct push_options {
  /// Which addresses may be connected to; nothing: those that are public.
  std::function<bool(const endpoint&)> may_connect;
  host_limits hosts;
  std::string trust;  ///< a file of certificates in PEM; empty: those of the system
  resolver::options names;
  /// What several pushers share; nothing: it is the pusher's own.
  std::shared_ptr<push_house> house;
};

/// Names and receivers: the limits of a receiver are over all that is sent to it.
struct push_house {
  push_house(runtime& rt, const push_options& o) : names(rt, o.names), hosts(o.hosts) {}
  resolver names;
  host_table hosts;
};

class pusher {
 public:
  /// Throws std::runtime_error if the certificates cannot be used.
  pusher(runtime& rt, command_sink& to, push_options options);
  pusher(const pusher&) = delete;
  pusher& operator=(const pusher&) = delete;
  ~pusher() { stop(); }

  /// No more tasks are taken. Deliveries have a second to end; then they are given up, and their
  /// tasks are given back. To be called while the committer runs.
  void stop();

  const push_figures& figures() const noexcept { return figures_; }

 private:
  struct feed;
  class visitor;
  using shared_feed = std::shared_ptr<feed>;

  static std::shared_ptr<ssl_ctx_st> make_trust(const std::string& file);
  verge::task<> follow();
  void change(const std::string& tube, shared_push settings);
  verge::task<> serve(shared_feed f);
  static verge::task<> send(pusher* me, shared_feed f, handed_out t, std::uint64_t number);
  verge::task<> attempt(const shared_feed& f, places::ticket& place, const handed_out& t,
                        const push_settings& s);
  void start(const shared_feed& f, handed_out t);
  void submit(command c) { to_.submit({clerk_, std::move(c)}); }
  void give_up(const handed_out& t, std::string why);

  command_sink& to_;
  push_options options_;
  std::shared_ptr<ssl_ctx_st> trust_;
  const std::shared_ptr<push_house> house_;
  push_figures figures_;
  const std::shared_ptr<inbox> follower_{std::make_shared<inbox>()};
  const std::shared_ptr<client> clerk_{std::make_shared<deaf_client>()};
  std::map<std::string, shared_feed> feeds_;
  std::vector<join_handle<>> serving_;
  std::mutex lock_;
  std::map<std::uint64_t, join_handle<>> sending_;
  std::uint64_t next_{0};
  std::atomic<bool> stopping_{false};
  bool stopped_{false};
  join_handle<> following_;
};

}  // namespace verge::server::push
