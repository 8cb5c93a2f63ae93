// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verge/log.h>

namespace verge::detail {

/// Hands one line, formatted as by printf, to the log handler. It is cut off after a kilobyte.
/// Allocates nothing.
[[gnu::format(printf, 2, 3)]] void log(log_level level, const char* format, ...) noexcept;

}  // namespace verge::detail
