// SPDX-License-Identifier: Apache-2.0

#include <verge/trace.h>
#include <verge/verge.h>

#include <fstream>
#include <thread>

namespace reference_trace {

using namespace std::chrono_literals;

void example(verge::runtime& rt) {
  verge::trace recording(rt);
  std::this_thread::sleep_for(2s);
  recording.stop();
  std::ofstream file("trace.json");
  recording.write(file);
}

}  // namespace reference_trace
