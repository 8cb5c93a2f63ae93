// SPDX-License-Identifier: Apache-2.0

#include <verge/execution.h>

#include <exception>

namespace reference_execution {

using namespace std::chrono_literals;

struct done {
  using receiver_concept = stdexec::receiver_t;
  void set_value() && noexcept {}
  void set_stopped() && noexcept {}
  void set_error(const std::exception_ptr& /*e*/) && noexcept {}
};

void example() {
  verge::timed_scheduler s;                 // or {rt}, for a runtime of your own
  auto at = s.schedule_at(s.now() + 1min);  // a sender, for any algorithm
  auto work = stdexec::connect(s.schedule_after(30s), done{});
  stdexec::start(work);
}

}  // namespace reference_execution
