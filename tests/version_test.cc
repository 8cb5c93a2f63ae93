#include <gtest/gtest.h>
#include <verge/version.h>

TEST(version, is_said_by_the_library) { EXPECT_STREQ(verge::version(), "0.1.0"); }
