// SPDX-License-Identifier: Apache-2.0

#include <verge/uv.h>

namespace reference_uv {

using namespace std::chrono_literals;

struct client {};
void close(client& c);

void example(client& connection) {
  verge::uv_timers timers(uv_default_loop());
  auto t = timers.start(30s, [&] { close(connection); });
  uv_run(uv_default_loop(), UV_RUN_DEFAULT);
}

}  // namespace reference_uv
