// SPDX-License-Identifier: Apache-2.0

// A test in simulated time of code that takes a day: it takes no real time, and the result is the
// same on every run. The code under test does not know it.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include <verge/chan.h>
#include <verge/simulation.h>
#include <verge/task.h>
#include <verge/time.h>
#include <verge/timeout.h>

using namespace std::chrono_literals;

namespace {

// The code under test: a session ends when its user has been inactive for half an hour, and in any
// case at midnight, which is eight hours from now.
class session {
 public:
  session() : midnight_(verge::clock::now() + 8h) {
    idle_ = verge::after_func(30min, [this] { end("idle"); });
  }
  void used() {
    if (end_.empty()) idle_.reset_at(std::min(verge::clock::now() + 30min, midnight_));
  }
  const std::string& why_it_ended() const { return end_; }

 private:
  void end(const char* why) { end_ = verge::clock::now() < midnight_ ? why : "midnight"; }

  verge::clock::time_point midnight_;
  std::string end_;
  verge::timer idle_;  // the last member: what its callback uses outlives it
};

// And a poller that gives up on a server after three late answers.
verge::task<int> poll(verge::receiver<int> answers) {
  const verge::ticker every_hour(1h);
  int asked = 0;
  for (int failures = 0; failures < 3;) {
    co_await verge::recv(every_hour.c());
    ++asked;
    try {
      co_await verge::timeout(verge::recv(answers), 10s);
    } catch (const verge::timed_out&) {
      ++failures;
    }
  }
  co_return asked;
}

int wrong = 0;

void check(bool right, const char* what) {
  std::printf("%s: %s\n", right ? "right" : "WRONG", what);
  if (!right) ++wrong;
}

}  // namespace

int main() {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    // From here on this thread, and everything that it starts, is in simulated time. Another seed
    // runs simultaneous events in another order.
    verge::simulation sim(seed);
    const auto start = verge::clock::now();

    session left_alone;
    session busy;
    auto user = verge::every(29min, [&] { busy.used(); });

    sim.run_for(30min - 1ns);
    check(left_alone.why_it_ended().empty(), "a session lasts for half an hour");
    sim.run_for(1ns);
    check(left_alone.why_it_ended() == "idle", "and not a nanosecond longer");
    sim.run_for(7h);
    check(busy.why_it_ended().empty(), "one that is used continues");
    sim.run_for(1h);
    check(busy.why_it_ended() == "midnight", "until midnight");
    user.stop();

    // run() runs a task to its end and returns its result. This server answers for half a day.
    const verge::chan<int> answers;
    const auto server = verge::go([answers]() -> verge::task<> {
      for (int i = 0; i < 12; ++i) co_await verge::send(answers, i);
    });
    check(sim.run(poll(answers)) == 15, "twelve polls are answered and three are not");
    check(verge::clock::now() == start + 8h + 30min + 15h + 10s, "a day has passed");

    // A wait that can never end is an error that lists what each task waits for. (The user was
    // stopped above: otherwise there would always be something left to do.)
    try {
      sim.run([&]() -> verge::task<> { co_await verge::recv(answers); });
    } catch (const verge::deadlock& e) {
      check(std::string(e.what()).find("waits for chan receive") != std::string::npos,
            "there is no server to answer");
    }
  }
  return wrong == 0 ? 0 : 1;
}
