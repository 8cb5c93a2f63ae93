// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <verge/task.h>

#include "../model/task.h"
#include "hosts.h"
#include "resolver.h"
#include "url.h"

struct ssl_ctx_st;

/// One attempt to deliver a task: a POST, signed, to the receiver or to where it redirects.
///
/// A name is resolved once for each request, its addresses are checked, and the connection is made
/// to an address that was checked: a name that changes its addresses in between gains nothing. A
/// redirection is treated the same way, and where it leads has its own limits.
namespace verge::server::push {

struct parcel {
  task_id id{0};
  std::string tube;
  std::uint32_t attempt{1};
  std::shared_ptr<const std::string> body;
  url to;
  std::vector<std::string> secrets;
  nanoseconds timeout{0};
};

/// What came of it.
struct receipt {
  bool delivered{false};
  int status{0};       ///< of the response; 0: there was none
  std::string answer;  ///< in words, with the beginning of the response's body
  nanoseconds retry_after{0};
  bool give_up{false};  ///< trying again is of no use
  bool disable{false};  ///< 410: the receiver wants no more
  bool refused{false};  ///< the address is not public
  /// Nothing was sent there, and no attempt is counted: after so long it may be.
  std::optional<nanoseconds> postponed;
};

/// Which receivers may be sent to now. A delivery is at one receiver at a time: enter() that is
/// true, then leave(), then perhaps the one that it is redirected to.
class turnstile {
 public:
  turnstile() = default;
  turnstile(const turnstile&) = delete;
  turnstile& operator=(const turnstile&) = delete;
  virtual ~turnstile() = default;
  /// If it is false, `come_back` is in how long to ask again.
  virtual bool enter(const url& to, nanoseconds& come_back) = 0;
  virtual void leave(ending how) = 0;
};

struct post_office {
  resolver& names;
  ssl_ctx_st& trust;  ///< the certificates that are trusted
  const std::function<bool(const endpoint&)>& may_connect;
};

inline constexpr int most_redirections = 3;

verge::task<receipt> deliver(const post_office& with, turnstile& at, parcel p);

/// The seconds or the date of Retry-After, from now on; nothing if it is neither.
std::optional<nanoseconds> parse_retry_after(std::string_view value, wall_time now);

}  // namespace verge::server::push
