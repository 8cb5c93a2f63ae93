// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verge/endpoint.h>

namespace verge::server::push {

/// Whether the address is one of the public internet. Not public are loopback, private, shared,
/// link-local, multicast and reserved addresses, those for documentation, and all that carry such
/// an IPv4 address inside an IPv6 one. A request to one of these would let the author of a URL
/// reach what only this machine can.
bool is_public(const endpoint& at) noexcept;

}  // namespace verge::server::push
