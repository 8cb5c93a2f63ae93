// SPDX-License-Identifier: Apache-2.0

#include <verge/boost_asio.h>

#include <boost/asio.hpp>

namespace reference_boost_asio {

using namespace std::chrono_literals;

struct client {};
void close(client& c);

void example(client& connection) {
  boost::asio::io_context io;
  verge::boost_asio_timer idle(io, 30s);
  idle.async_wait([&](boost::system::error_code error) {
    if (!error) close(connection);
  });
}

}  // namespace reference_boost_asio
