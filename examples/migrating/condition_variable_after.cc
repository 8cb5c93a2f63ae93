// SPDX-License-Identifier: Apache-2.0

// The same with verge.

#include <chrono>
#include <cstdio>
#include <map>

#include <verge/time.h>

using namespace std::chrono_literals;

namespace {

// [code]
class reminders {
 public:
  void start(int order, std::chrono::nanoseconds d) {
    due_[order] =
        verge::after_func(d, [order] { std::printf("order %d: do you still want it?\n", order); });
  }
  bool paid(int order) { return due_[order].stop(); }  // true: it will never be sent

 private:
  std::map<int, verge::timer> due_;
};
// [/code]

}  // namespace

int main() {
  reminders r;
  r.start(1, 10ms);
  r.start(2, 3min);
  const bool stopped = r.paid(2);
  verge::sleep(50ms).wait();
  return stopped ? 0 : 1;
}
