// SPDX-License-Identifier: Apache-2.0

// A handle owns its timer: when the handle is destroyed, the function is not running and will not
// be called. That is what makes a timer as a member of a class safe.

#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include <verge/time.h>

using namespace std::chrono_literals;

namespace {

class connection {
 public:
  explicit connection(std::string name) : name_(std::move(name)) {
    idle_ = verge::after_func(30s, [this] { std::printf("%s is idle\n", name_.c_str()); });
  }
  void received() { idle_.reset(30s); }

 private:
  std::string name_;
  verge::timer idle_;  // the last member: destroyed first, before what its function uses
};

}  // namespace

int main() {
  std::map<int, connection> connections;
  for (int id = 0; id < 1000; ++id) connections.try_emplace(id, "client " + std::to_string(id));
  connections.at(7).received();
  connections.clear();  // a thousand timers stopped; no function refers to what is destroyed

  // Without a handle the timer runs on.
  verge::after_func(10ms, [] { std::puts("detached, and called"); }).detach();
  verge::sleep(50ms).wait();
}
