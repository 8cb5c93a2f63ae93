// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <verge/endpoint.h>
#include <verge/runtime.h>

#include "membership.h"
#include "peers.h"
#include "router.h"

namespace verge::server::cluster {

struct node_options {
  membership_options member;
  endpoint peer{endpoint::loopback(0)};  ///< where other servers send commands
};

/// A server of a cluster, without its protocols: leases, connections to the others, routing.
class node {
 public:
  /// Throws store_error, or std::system_error if it cannot listen.
  node(runtime& rt, node_options options)
      : membership_(rt, std::move(options.member)),
        peers_(rt, options.peer, membership_.secret(),
               {.local = [this](std::uint32_t s) { return membership_.local_for_peer(s); },
                .look = [this] { membership_.look(); }}),
        router_(rt, membership_, peers_) {
    membership_.tell = [this](const std::vector<std::string>& to) { peers_.tell_to_look(to); };
    membership_.everywhere = &router_;
  }
  node(const node&) = delete;
  node& operator=(const node&) = delete;

  /// Clients come at these addresses.
  void start(const std::string& tasks, const std::string& http) {
    peers_.start();
    membership_.start(peers_.address().to_string(), tasks, http);
  }
  /// Gives all shards up. Commands are passed on from then on.
  void leave() { membership_.leave(); }
  /// When no client is left.
  void stop() {
    router_.stop();
    membership_.stop();
    peers_.stop();
  }

  command_sink& sink() noexcept { return router_; }
  membership& members() noexcept { return membership_; }

 private:
  membership membership_;
  peers peers_;
  router router_;
};

}  // namespace verge::server::cluster
