// SPDX-License-Identifier: Apache-2.0

// Unpaid orders, each reminded after three minutes unless it is paid: a unit test of a thousand
// takes milliseconds, of a million about a second.

#include <chrono>
#include <cstdio>
#include <vector>

#include <verge/simulation.h>
#include <verge/time.h>

using namespace std::chrono_literals;

namespace {

// [orders]
class orders {
 public:
  explicit orders(int n) : reminders_(static_cast<std::size_t>(n)) {}

  void place(int id) {
    reminders_[static_cast<std::size_t>(id)] = verge::after_func(3min, [this] { ++reminded_; });
  }
  bool pay(int id) { return reminders_[static_cast<std::size_t>(id)].stop(); }
  int reminded() const { return reminded_; }

 private:
  int reminded_ = 0;
  std::vector<verge::timer> reminders_;
};
// [/orders]

bool test(int n) {
  const auto began = std::chrono::steady_clock::now();  // real time, also in a simulation

  // [test]
  verge::simulation sim;
  orders all(n);
  for (int id = 0; id < n; ++id) all.place(id);
  sim.run_for(3min - 1ns);
  const bool none_early = all.reminded() == 0;
  int paid = 0;
  for (int id = 0; id < n; ++id) paid += id % 20 != 0 && all.pay(id) ? 1 : 0;  // 95 %
  sim.run_for(1ns);
  // [/test]

  const auto took = std::chrono::steady_clock::now() - began;
  std::printf("%7d orders, %6d paid, %5d reminded, in %5.1f ms\n", n, paid, all.reminded(),
              std::chrono::duration<double, std::milli>(took).count());
  return none_early && all.reminded() == n - paid;
}

}  // namespace

int main() { return test(1'000) && test(100'000) && test(1'000'000) ? 0 : 1; }
