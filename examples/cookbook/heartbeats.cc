// SPDX-License-Identifier: Apache-2.0

// Failure detection: a node that has not been heard of for three seconds is down; the first
// heartbeat after that brings it back. One timer for each node, reset by every heartbeat.

#include <chrono>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <verge/simulation.h>
#include <verge/time.h>

using namespace std::chrono_literals;

namespace {

// [detector]
class failure_detector {
 public:
  using event = std::function<void(const std::string& node, bool up)>;
  // on_change is called without a lock, once at a time, and in the order of what has happened.
  explicit failure_detector(event on_change) : on_change_(std::move(on_change)) {}

  ~failure_detector() {
    std::map<std::string, state> all;  // its timers are destroyed when the mutex is free
    const std::lock_guard held(mutex_);
    all.swap(nodes_);
  }

  // From any thread.
  void heard_of(const std::string& node) {
    const std::lock_guard held(mutex_);
    auto [it, is_new] = nodes_.try_emplace(node);
    it->second.last = verge::clock::now();
    if (is_new)
      it->second.silence = verge::after_func(patience, [this, node] { silent(node); });
    else
      it->second.silence.reset(patience);
    if (!std::exchange(it->second.up, true)) changed(node, true);
  }

 private:
  static constexpr auto patience = 3s;
  struct state {
    bool up = false;
    verge::time_point last{};
    verge::timer silence;
  };

  void silent(const std::string& node) {
    const std::lock_guard held(mutex_);
    const auto it = nodes_.find(node);
    if (it == nodes_.end()) return;  // the detector is being destroyed
    if (verge::clock::now() < it->second.last + patience) return;  // heard of just now
    it->second.up = false;
    changed(node, false);
  }

  void changed(const std::string& node, bool up) {  // with the mutex held
    changes_.emplace_back(node, up);
    tell_.reset(0s);
  }

  void tell() {  // by one timer, whose calls do not overlap
    for (;;) {
      std::pair<std::string, bool> change;
      {
        const std::lock_guard held(mutex_);
        if (changes_.empty()) return;
        change = std::move(changes_.front());
        changes_.pop_front();
      }
      on_change_(change.first, change.second);
    }
  }

  const event on_change_;
  std::mutex mutex_;
  std::map<std::string, state> nodes_;
  std::deque<std::pair<std::string, bool>> changes_;
  verge::timer tell_ =
      verge::after_func(verge::time_point::max(), [this] { tell(); });  // never due
};
// [/detector]

}  // namespace

int main() {
  verge::simulation sim;
  const auto start = sim.now();
  std::vector<std::string> log;
  failure_detector detector([&](const std::string& node, bool up) {
    log.push_back(std::to_string((verge::clock::now() - start) / 1s) + " s: " + node +
                  (up ? " up" : " down"));
    std::puts(log.back().c_str());
  });
  const auto steady = verge::every(1s, [&] { detector.heard_of("a"); });
  detector.heard_of("b");
  sim.run_for(10s);
  detector.heard_of("b");
  sim.run_for(1s);

  // What is called may use the detector, and a mutex that its callers hold.
  std::mutex mutex;
  int seen = 0;
  failure_detector* self = nullptr;
  failure_detector nested([&](const std::string& node, bool up) {
    const std::lock_guard held(mutex);
    ++seen;
    if (node == "c" && up) self->heard_of("d");
  });
  self = &nested;
  {
    const std::lock_guard held(mutex);
    nested.heard_of("c");
  }
  sim.run_for(1s);
  if (seen != 2) return 1;
  return log == std::vector<std::string>{"0 s: b up", "1 s: a up", "3 s: b down", "10 s: b up"} ? 0
                                                                                                : 1;
}
