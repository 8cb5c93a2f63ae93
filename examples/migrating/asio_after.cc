// SPDX-License-Identifier: Apache-2.0

// The same with verge.

#include <chrono>
#include <cstdio>

#include <verge/time.h>

using namespace std::chrono_literals;

namespace {

// [code]
class connection {
 public:
  void received() { idle_.reset(30ms); }  // from any thread

 private:
  verge::timer idle_ = verge::after_func(30ms, [] { std::puts("idle"); });
};  // destroyed: the function is not running and will not be called
// [/code]

}  // namespace

int main() {
  connection c;
  c.received();
  verge::sleep(60ms).wait();
}
