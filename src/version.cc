// SPDX-License-Identifier: Apache-2.0

#include <verge/version.h>

#define TEXT_OF(number) #number
#define DOTTED(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

namespace verge {

const char* version() noexcept {
  return DOTTED(VERGE_VERSION_MAJOR, VERGE_VERSION_MINOR, VERGE_VERSION_PATCH);
}

}  // namespace verge
