// SPDX-License-Identifier: Apache-2.0

#include <verge/simulation.h>
#include <verge/verge.h>

namespace reference_simulation {

using namespace std::chrono_literals;

void example() {
  verge::simulation sim;
  sim.run([]() -> verge::task<> {
    co_await verge::sleep(24h);  // takes no real time
  });
}

}  // namespace reference_simulation
