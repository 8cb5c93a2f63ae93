// SPDX-License-Identifier: Apache-2.0

// What docs/observability.md shows: the inspector, labels, stalls, a dump and a trace.

#include <verge/verge.h>

#include <chrono>
#include <fstream>
#include <iostream>

using namespace std::chrono_literals;

struct watched_program {
  verge::runtime rt{{.on_stall = verge::log_stall}};
  verge::inspector page{rt, {.at = verge::endpoint::loopback(0)}};  // 6060 if none is given
};

verge::timer idle_timeout(verge::runtime& rt) {
  return verge::after_func(rt, 30s, [] { std::cout << "idle\n"; }, {.label = "idle time-out"});
}

verge::task<> courier() {
  verge::label_task("courier");
  co_await verge::sleep(20ms);
}

void record(verge::runtime& rt, const char* path) {
  verge::trace recording(rt);
  rt.run(courier());
  recording.stop();
  std::ofstream file(path);
  recording.write(file);
}

int main() {
  watched_program program;
  const auto idle = idle_timeout(program.rt);
  record(program.rt, "/dev/null");
  verge::write_dump(std::cout, program.rt);
  return program.page.url().starts_with("http://127.0.0.1:") ? 0 : 1;
}
