// SPDX-License-Identifier: Apache-2.0

#include <verge/endpoint.h>
#include <verge/verge.h>

namespace reference_endpoint {

using verge::endpoint;

void example() {
  auto server = endpoint::parse("127.0.0.1:8080");  // or "[::1]:80", "[fe80::1%2]:80"
  auto local = endpoint::loopback(8080);            // or loopback_v6(8080)
  auto all = endpoint::any(8080);                   // or any_v6(8080): every interface
  auto file = endpoint::path("/run/x");             // or "@name", which has no file
}

}  // namespace reference_endpoint
