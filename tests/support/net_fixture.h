// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <verge/runtime.h>

#include <support/sockets.h>

namespace verge::test {

/// The fixture of socket tests: a runtime, and both ends of a connection on demand.
class net : public testing::Test {
 protected:
  two_ends connect() { return rt.run(connected()); }

  runtime rt{{.processors = 2}};
};

}  // namespace verge::test
