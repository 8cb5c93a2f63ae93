// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verge/detail/waiter.h>

namespace verge::test {

/// A party that waits, and counts how often it is woken.
class counting_waiter : public detail::waiter {
 public:
  counting_waiter() : waiter(&count) {}
  int woken = 0;

 private:
  static void count(waiter& w) noexcept { ++static_cast<counting_waiter&>(w).woken; }
};

}  // namespace verge::test
