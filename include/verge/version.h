// SPDX-License-Identifier: Apache-2.0
#pragma once

#pragma GCC visibility push(default)

/// The version of these headers, for the preprocessor; VERGE_VERSION is 100 for 0.1.0:
///
///   #if VERGE_VERSION >= 200                   // 0.2.0 and later
///   use_what_is_new();
///   #endif
#define VERGE_VERSION_MAJOR 0
#define VERGE_VERSION_MINOR 1
#define VERGE_VERSION_PATCH 0
#define VERGE_VERSION \
  (VERGE_VERSION_MAJOR * 10000 + VERGE_VERSION_MINOR * 100 + VERGE_VERSION_PATCH)

namespace verge {

/// The version of the library that is linked, such as "0.1.0".
const char* version() noexcept;

}  // namespace verge

#pragma GCC visibility pop
