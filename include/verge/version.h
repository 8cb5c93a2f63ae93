#pragma once

#pragma GCC visibility push(default)

namespace verge {

/// The version of the library that is linked, such as "0.1.0".
const char* version() noexcept;

}  // namespace verge

#pragma GCC visibility pop
