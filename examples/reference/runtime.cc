// SPDX-License-Identifier: Apache-2.0

#include <verge/runtime.h>
#include <verge/verge.h>

#include <unistd.h>

namespace reference_runtime {

using namespace std::chrono_literals;

verge::task<> serve();
void remind();

void example() {
  verge::runtime rt{{.processors = 4}};
  rt.run(serve());  // runs a task and waits for its result
}

verge::task<> serve_at(int port);

void chosen(verge::runtime& rt, int port, verge::context parent) {
  auto& serve = serve_at;
  auto reminder = verge::after_func(rt, 3min, remind);
  verge::timer t(rt, 30s);
  verge::go(rt, serve, port).detach();
  auto [ctx, cancel] = verge::with_timeout(rt, parent, 2s);
  verge::sleep(rt, 10ms).wait();
}

void as_a_daemon() {
  ::daemon(0, 0);
  verge::runtime rt;
  rt.run(serve());
}

}  // namespace reference_runtime
