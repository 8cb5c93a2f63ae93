// SPDX-License-Identifier: Apache-2.0

// The same with verge.

#include <chrono>
#include <cstdio>

#include <verge/time.h>

using namespace std::chrono_literals;

namespace {

// [code]
int run() {
  int count = 0;
  {
    const auto ticks = verge::every(10ms, [&] { ++count; });
    verge::sleep(55ms).wait();
  }  // stopped, and no call is running: count may be read
  return count;
}
// [/code]

}  // namespace

int main() { std::printf("flushed %s\n", run() > 0 ? "some times" : "never"); }
