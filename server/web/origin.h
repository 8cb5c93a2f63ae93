// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "http1/request.h"

/// Protection against pages of other sites, which a browser lets send requests to this server.
namespace verge::server::web {

/// Throws `refused` if a page of another site sends a request that changes something: by what the
/// browser says of it in Sec-Fetch-Site and Origin. Clients that are no browsers send neither.
void check_origin(const http::request& r);

/// Throws `refused` if the request was sent to a name that is not this server's. A server on
/// loopback without tokens trusts that only programs of this machine reach it; a page whose own
/// name resolves to 127.0.0.1 would be one of them. `also` are further names that are allowed.
void check_host(const http::request& r, const std::vector<std::string>& also);

}  // namespace verge::server::web
