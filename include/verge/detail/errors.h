// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <system_error>

#pragma GCC visibility push(default)

/// Throwing, out of line: what is inlined everywhere should not carry the texts.
namespace verge::detail {

[[noreturn]] void throw_cancelled();
/// What an operation gives that had done a part of its work when its task was cancelled.
std::error_code cancelled_error() noexcept;
/// On a thread whose wait was ended by_deadlock.
[[noreturn]] void throw_deadlock();
[[noreturn]] void throw_send_on_closed();
[[noreturn]] void throw_closed_twice();
[[noreturn]] void throw_no_channel();
[[noreturn]] void throw_capacity_too_large();
[[noreturn]] void throw_no_task();
[[noreturn]] void throw_nothing_to_join();

}  // namespace verge::detail

#pragma GCC visibility pop
