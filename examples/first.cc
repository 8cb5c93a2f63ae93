// The README's first example.

#include <verge/time.h>

#include <chrono>
#include <iostream>

using namespace std::chrono_literals;

int main() {
  auto paid = verge::after_func(3min, [] { std::cout << "Do you still want it?\n"; });
  auto open = verge::after_func(50ms, [] { std::cout << "Your order is still open.\n"; });

  // The customer pays. True says that the reminder was pending and will never be sent.
  std::cout << std::boolalpha << paid.stop() << '\n';

  int ticks = 0;
  verge::ticker every_20ms(20ms);
  for (auto at : every_20ms.c()) {
    std::cout << "tick " << ++ticks << " at " << at.time_since_epoch() / 1ms << " ms\n";
    if (ticks == 5) break;
  }
}
