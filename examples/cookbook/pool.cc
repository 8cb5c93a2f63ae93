// SPDX-License-Identifier: Apache-2.0

// A pool of connections for plain threads: those that are idle for too long are closed. No task, no
// coroutine; only timers.

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

#include <verge/simulation.h>
#include <verge/time.h>

using namespace std::chrono_literals;

namespace {

struct connection {
  int number;
};

// [pool]
class pool {
 public:
  ~pool() {
    std::list<entry> closed;  // not under the mutex, for which a call of expire() may be waiting
    const std::lock_guard held(mutex_);
    closed.swap(idle_);
  }

  std::unique_ptr<connection> take() {
    entry used;  // its timer is destroyed when the mutex is free: that may wait for expire()
    const std::lock_guard held(mutex_);
    if (idle_.empty()) return std::make_unique<connection>(connection{++made_});
    used = std::move(idle_.front());
    idle_.pop_front();
    return std::move(used.conn);
  }

  void give_back(std::unique_ptr<connection> conn) {
    const std::lock_guard held(mutex_);
    const auto at = idle_.insert(idle_.begin(), entry{std::move(conn), ++visits_, {}});
    at->expiry = verge::after_func(30s, [this, visit = at->visit] { expire(visit); });
  }

  std::size_t idle() {
    const std::lock_guard held(mutex_);
    return idle_.size();
  }

 private:
  struct entry {
    std::unique_ptr<connection> conn;
    int visit = 0;
    verge::timer expiry;
  };

  // Called by the timer of that visit. If the connection was taken meanwhile, there is none.
  void expire(int visit) {
    std::list<entry> closed;  // destroyed after the mutex is released
    const std::lock_guard held(mutex_);
    for (auto it = idle_.begin(); it != idle_.end(); ++it) {
      if (it->visit != visit) continue;
      closed.splice(closed.end(), idle_, it);
      break;
    }
  }

  std::mutex mutex_;
  int made_ = 0;
  int visits_ = 0;
  std::list<entry> idle_;
};
// [/pool]

}  // namespace

int main() {
  verge::simulation sim;
  pool connections;
  auto a = connections.take();
  auto b = connections.take();
  connections.give_back(std::move(a));
  sim.run_for(20s);
  connections.give_back(std::move(b));
  sim.run_for(15s);
  std::printf("idle after 35 s: %zu\n", connections.idle());
  auto again = connections.take();
  std::printf("taken again: connection %d\n", again->number);
  sim.run_for(1min);
  return connections.idle() == 0 && again->number == 2 ? 0 : 1;
}
