// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../broker/command.h"
#include "../doors/token.h"
#include "http1/request.h"
#include "http1/response.h"
#include "signs.h"

/// The HTTP interface: which requests there are, what each asks of the broker, and how the broker's
/// replies become a response. openapi.json is the contract; a test holds the two together.
///
/// Nothing here knows sockets, and no rule about tasks is here: those are the broker's.
namespace verge::server::web {

/// What the interface has to know of the server.
struct api_settings {
  std::uint32_t body{65'535};   ///< of a task
  std::size_t tasks{1'000};     ///< in one request, to put or to reserve
  std::size_t page{1'000};      ///< of a list, at most
  std::size_t usual_page{100};  ///< of a list, unless it says how many
  std::string disk{};           ///< the directory whose disk is looked at; empty: none
  const signs* condition{nullptr};
  nanoseconds wait{300'000'000'000};  ///< the longest that a reserve waits
};

/// What a request asks for.
struct operation {
  enum class kind : std::uint8_t {
    ask,     ///< `commands` for the broker; `answer` makes the response
    answer,  ///< `ready` is the response
    probe,   ///< as ask, but the broker has to answer soon
    events,  ///< a stream of events, until the client leaves
  };
  kind what{kind::ask};
  bool waits{false};  ///< the replies may take long, and the client may leave before
  std::vector<command> commands;
  std::function<http::response(std::vector<reply>&)> answer;
  http::response ready;
  scope needs{scope::admin};
  std::string tube;          ///< that it is about, if the path names one
  bool of_all_tubes{false};  ///< it tells about all of them
  std::string_view route{};  ///< for the log: the path itself may have keys and leases in it
};

/// Throws `refused` if there is something wrong with the request.
operation plan(const http::request& r, const api_settings& limits);

/// For the test of the contract.
struct route_name {
  std::string_view method;
  std::string_view pattern;  ///< "/v1/tubes/{tube}/tasks"
};
std::vector<route_name> all_routes();

}  // namespace verge::server::web
