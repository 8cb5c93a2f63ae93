// SPDX-License-Identifier: Apache-2.0
// Helpers for tests of contexts.
#pragma once

#include <verge/context.h>

namespace verge::test {

inline bool is_closed(const context& c) { return c.done().closed(); }

}  // namespace verge::test
