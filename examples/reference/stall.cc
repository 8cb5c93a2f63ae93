// SPDX-License-Identifier: Apache-2.0

#include <verge/stall.h>
#include <verge/verge.h>

namespace reference_stall {

void example() { verge::runtime rt({.on_stall = verge::log_stall}); }

}  // namespace reference_stall
