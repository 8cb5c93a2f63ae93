// SPDX-License-Identifier: Apache-2.0
// The base of every test that explores schedules.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include <explorer/exploration.h>

namespace verge::test {

class explored : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_explore) GTEST_SKIP() << "the thread sanitizer does not know the explorer's threads";
  }

  static void expect_right(const exploration& e) {
    EXPECT_FALSE(e.failed) << e.report();
    if (std::getenv("VERGE_SCHEDULE") == nullptr) {
      EXPECT_GT(e.schedules, e.scenarios);
    }
  }
};

}  // namespace verge::test
