// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>
#include <support/scale.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace {

class scale : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* set = std::getenv("VERGE_TEST_SCALE")) before_ = set;
  }
  void TearDown() override {
    if (before_) {
      setenv("VERGE_TEST_SCALE", before_->c_str(), 1);
    } else {
      unsetenv("VERGE_TEST_SCALE");
    }
  }

 private:
  std::optional<std::string> before_;
};

TEST_F(scale, is_full_unless_a_sanitizer_makes_it_slow) {
  unsetenv("VERGE_TEST_SCALE");
  EXPECT_EQ(verge::test::scale(10, 1), verge::test::is_sanitized ? 1 : 10);
}

TEST_F(scale, is_what_the_environment_says) {
  setenv("VERGE_TEST_SCALE", "quick", 1);
  EXPECT_EQ(verge::test::scale(10, 1), 1);
  setenv("VERGE_TEST_SCALE", "full", 1);
  EXPECT_EQ(verge::test::scale(10, 1), 10);
}

TEST_F(scale, rejects_an_unknown_word) {
  setenv("VERGE_TEST_SCALE", "slow", 1);
  EXPECT_EXIT(verge::test::scale(10, 1), testing::ExitedWithCode(2),
              "VERGE_TEST_SCALE is 'slow'; set it to quick or full");
}

}  // namespace
