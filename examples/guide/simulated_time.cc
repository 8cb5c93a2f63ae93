// SPDX-License-Identifier: Apache-2.0

// A test of code that takes days: in virtual time, exact to the nanosecond, the same on every run.

#include <chrono>
#include <cstdio>
#include <string>

#include <verge/simulation.h>
#include <verge/time.h>

using namespace std::chrono_literals;

namespace {

// The code under test, which does not know about the simulation.
class trial {
 public:
  trial() {
    warn_ = verge::after_func(29 * 24h, [this] { state_ = "warned"; });
    end_ = verge::after_func(30 * 24h, [this] { state_ = "ended"; });
  }
  void pay() {
    warn_.stop();
    end_.stop();
    state_ = "paid";
  }
  const std::string& state() const { return state_; }

 private:
  std::string state_ = "running";
  verge::timer warn_;
  verge::timer end_;
};

int failures = 0;
void check(bool right, const char* what) {
  std::printf("%s: %s\n", right ? "ok" : "FAILED", what);
  if (!right) ++failures;
}

}  // namespace

int main() {
  verge::simulation sim;
  trial forgotten;
  trial paid;
  sim.run_for(29 * 24h - 1ns);
  check(forgotten.state() == "running", "runs for 29 days");
  sim.run_for(1ns);
  check(forgotten.state() == "warned", "warns, not a nanosecond early");
  paid.pay();
  sim.run_for(24h);
  check(forgotten.state() == "ended", "ends after 30 days");
  check(paid.state() == "paid", "unless it was paid");
  return failures == 0 ? 0 : 1;
}
