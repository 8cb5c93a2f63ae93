// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>
#include <verge/verge.h>

#include <string>

TEST(version, is_reported_by_the_library) { EXPECT_STREQ(verge::version(), "0.1.0"); }

TEST(version, of_the_headers_is_defined_for_the_preprocessor) {
#if VERGE_VERSION < 100 || VERGE_VERSION >= 10000
  FAIL() << "0.1.0 or later, before 1.0";
#endif
  EXPECT_EQ(std::to_string(VERGE_VERSION_MAJOR) + '.' + std::to_string(VERGE_VERSION_MINOR) + '.' +
                std::to_string(VERGE_VERSION_PATCH),
            verge::version());
  EXPECT_EQ(VERGE_VERSION,
            10000 * VERGE_VERSION_MAJOR + 100 * VERGE_VERSION_MINOR + VERGE_VERSION_PATCH);
}
