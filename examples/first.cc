// SPDX-License-Identifier: Apache-2.0

// The README's first example.

#include <verge/time.h>

#include <chrono>
#include <iostream>

using namespace std::chrono_literals;

int main() {
  auto reminder = verge::after_func(3min, [] { std::cout << "Do you still want it?\n"; });
  auto receipt = verge::after_func(50ms, [] { std::cout << "Your receipt.\n"; });

  // The customer pays. True: the reminder was pending and will never be sent.
  std::cout << std::boolalpha << reminder.stop() << '\n';

  const auto start = verge::clock::now();
  int ticks = 0;
  verge::ticker every_20ms(20ms);
  for (auto at : every_20ms.c()) {
    std::cout << "tick " << ++ticks << " after " << (at - start) / 1ms << " ms\n";
    if (ticks == 5) break;
  }
}
