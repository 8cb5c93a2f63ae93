// SPDX-License-Identifier: Apache-2.0
#pragma once

#pragma GCC visibility push(default)

namespace verge::detail {

/// The type of a callable, as the compiler writes it, within the text that this function's name is.
/// The type of a lambda names the function in which it is written, so it tells where a timer or a
/// task comes from, and costs a pointer to a constant. src/base/code_name.h makes a name of it.
template <class F>
constexpr const char* written_as() noexcept {
  return __PRETTY_FUNCTION__;
}

}  // namespace verge::detail

#pragma GCC visibility pop
