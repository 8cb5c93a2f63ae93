// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <verge/clock.h>
#include <verge/endpoint.h>
#include <verge/task.h>

#include "name_files.h"

/// Asks name servers for addresses, over UDP and, if a reply does not fit, over TCP.
///
/// No thread waits: a name whose server hangs costs a socket and a timer, so that a thousand of
/// them delay no other. Each question has a socket of its own, with a port that the kernel chose at
/// random, and a random id: without the question, a reply to it cannot be guessed.
namespace verge::server::push {

struct addresses {
  std::vector<endpoint> found;  ///< with the port that was asked for
  std::string why;              ///< if there are none
};

/// Tries the candidates one after the other until one has addresses, and nothing after the
/// deadline. `with_v6`: addresses of IPv6 are of use here, and come first.
verge::task<addresses> ask_dns(std::shared_ptr<const name_sources> sources, std::string host,
                               clock::time_point deadline, bool with_v6);

/// Whether this machine has an IPv6 address that reaches others.
bool has_ipv6();

}  // namespace verge::server::push
