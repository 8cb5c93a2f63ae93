// SPDX-License-Identifier: Apache-2.0

// Channels between a plain thread and tasks, and select: whichever comes first.

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>

#include <verge/chan.h>
#include <verge/runtime.h>
#include <verge/select.h>
#include <verge/task.h>
#include <verge/time.h>

using namespace std::chrono_literals;

namespace {

verge::task<> consume(verge::receiver<std::string> lines, verge::receiver<int> stop) {
  for (;;) {
    std::optional<std::string> line;
    switch (co_await verge::select(verge::recv(lines, line), verge::recv(stop),
                                   verge::recv(verge::after(10s)))) {
      case 0:
        if (!line) {
          std::puts("no more lines");
          co_return;
        }
        std::printf("line: %s\n", line->c_str());
        break;
      case 1:
        std::puts("stopped");
        co_return;
      case 2:
        std::puts("nothing for ten seconds");
        co_return;
    }
  }
}

}  // namespace

int main() {
  const verge::chan<std::string> lines(8);
  const verge::chan<int> stop;
  auto task = verge::go(consume, lines, stop);

  std::thread reader([lines] {  // a plain thread: send() blocks it while the channel is full
    for (const char* text : {"one", "two", "three"}) lines.send(text);
    lines.close();
  });
  reader.join();
  task.join();
}
