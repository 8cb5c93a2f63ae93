// SPDX-License-Identifier: Apache-2.0

#include <verge/task.h>
#include <verge/verge.h>

namespace reference_task {

verge::task<int> answer() { co_return 42; }

verge::task<void> ask() {
  int a = co_await answer();                   // runs it here
  verge::join_handle h = verge::go(answer());  // runs it concurrently
  int b = co_await h;                          // waits; or h.join() on a plain thread
}

}  // namespace reference_task
