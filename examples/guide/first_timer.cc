// SPDX-License-Identifier: Apache-2.0

// A timer that fires, one that is stopped in time, and one that is postponed.

#include <chrono>
#include <iostream>

#include <verge/time.h>

using namespace std::chrono_literals;

int main() {
  const auto start = verge::clock::now();
  const auto say = [start](const char* what) {
    std::cout << (verge::clock::now() - start) / 10ms * 10 << " ms: " << what << '\n';
  };

  auto receipt = verge::after_func(20ms, [=] { say("your receipt"); });
  auto reminder = verge::after_func(3min, [=] { say("do you still want it?"); });
  auto idle = verge::after_func(10ms, [=] { say("idle"); });

  std::cout << std::boolalpha;
  std::cout << "postponed: " << idle.reset(50ms) << '\n';
  std::cout << "stopped: " << reminder.stop() << '\n';
  std::cout << "stopped again: " << reminder.stop() << '\n';

  verge::sleep(80ms).wait();
}
