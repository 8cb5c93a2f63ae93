// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <verge/chan.h>
#include <verge/endpoint.h>
#include <verge/net.h>
#include <verge/runtime.h>
#include <verge/task.h>

#include "frames.h"
#include "lane.h"
#include "shard_service.h"

/// Connections to other servers, and from them.
///
/// There is one connection in each direction that is used: the server that passes commands on makes
/// it when it has one. If it is lost, what was not answered is: `moved` for commands that can be
/// given again, and `internal_error` for those that may have been executed. At the other end the
/// clients of its lanes leave.
///
/// Ground rules: what is to be sent is under the lock of its connection, and one task writes it;
/// one task reads. A connection that is lost is replaced, never used again.
namespace verge::server::cluster {

class peer_link;
class guest;

class peers {
 public:
  struct callbacks {
    std::function<std::shared_ptr<shard_service>(std::uint32_t)> local;
    std::function<void()> look;  ///< another server says that the leases have changed
  };
  /// Listens. Throws std::system_error if it cannot.
  peers(runtime& rt, const endpoint& listen, std::string secret, callbacks ask);
  peers(const peers&) = delete;
  peers& operator=(const peers&) = delete;
  ~peers() { stop(); }

  endpoint address() const { return address_; }
  void start();
  void stop();

  /// A lane to a shard at the server of that address. Does not wait: if the server cannot be
  /// reached the lane says so in its replies.
  std::unique_ptr<lane> open_lane(const std::string& address, std::uint32_t shard,
                                  std::uint64_t number, std::weak_ptr<lane_listener> to);
  void tell_to_look(const std::vector<std::string>& addresses);

 private:
  verge::task<> accept();
  std::shared_ptr<peer_link> link_to(const std::string& address);

  runtime& runtime_;
  const std::string secret_;
  const callbacks ask_;
  tcp_listener listener_;
  endpoint address_;
  std::mutex lock_;
  std::map<std::string, std::shared_ptr<peer_link>> links_;
  std::vector<std::weak_ptr<guest>> guests_;
  bool stopped_{false};
  join_handle<> accepting_;
};

}  // namespace verge::server::cluster
