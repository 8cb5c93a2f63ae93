// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "../broker/command.h"

namespace verge::server::beanstalk {

/// What a reply of the server's statistics says besides what the broker knows.
struct server_identity {
  std::uint64_t body_limit{0};
  std::string id;  ///< random, another one with each start
  std::string hostname, os, platform;
};
server_identity identify(std::uint64_t body_limit);

/// Appends a reply as beanstalk's protocol has it.
void append_reply(std::string& out, const reply& r, const server_identity& me);

}  // namespace verge::server::beanstalk
