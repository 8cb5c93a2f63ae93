// SPDX-License-Identifier: Apache-2.0

#include <verge/verge.h>
#include <verge/version.h>

namespace reference_version {

void use_what_is_new();

void example() {
#if VERGE_VERSION >= 200  // 0.2.0 and later
  use_what_is_new();
#endif
}

}  // namespace reference_version
