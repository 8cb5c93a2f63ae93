// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#pragma GCC visibility push(default)

/// What the library has to say: by default it is printed to stderr, a line each, after "verge: ".
///
///   verge::set_log_handler([](verge::log_level level, std::string_view text) noexcept {
///     my_log(level == verge::log_level::fatal ? "FATAL" : "WARN", text);
///   });
///
/// It says little: that something in the program's environment is not as it should be, or, before
/// it ends the program, why. Nothing is said about what a function reports to its caller.
namespace verge {

/// How serious it is.
enum class log_level : std::uint8_t {
  warning,  ///< the program works, but not as well as it could
  error,    ///< a fault of the program, which may wait forever
  fatal,    ///< the program ends when the handler returns
};

/// The text is one line, without a line break, and valid during the call.
using log_handler = void (*)(log_level level, std::string_view text) noexcept;

/// The handler is called from any thread, from several at once, and in any function of the library,
/// under its locks too: it must not call the library. nullptr is the default. Returns the handler
/// before.
log_handler set_log_handler(log_handler handler) noexcept;

}  // namespace verge

#pragma GCC visibility pop
