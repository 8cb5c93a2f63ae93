// The README's first example: time-outs tested in no time, on a clock that is set by hand.

#include <verge/clock.h>

#include <chrono>
#include <iostream>

using namespace std::chrono_literals;

// A session ends when it has not been used for half an hour.
struct session {
  verge::clock::time_point last_used;
  bool ended(verge::clock::time_point now) const { return now - last_used >= 30min; }
};

int main() {
  verge::manual_clock clock;  // stands still until it is told otherwise
  const session visit{clock.now()};

  std::cout << std::boolalpha;
  clock.advance(29min);
  std::cout << visit.ended(clock.now()) << '\n';  // false
  clock.advance(1min);
  std::cout << visit.ended(clock.now()) << '\n';  // true
}
