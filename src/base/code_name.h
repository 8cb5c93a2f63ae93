// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

/// Names of code, for people: what a timer calls, what a task runs, the frames of a backtrace.
namespace verge::detail {

/// The type in what written_as() returns: "shop::place_all()::<lambda()>".
std::string_view type_in(const char* written) noexcept;

/// What lies at an address of code: "serve(int)+0x1c", or "program+0x12ab" if there is no name for
/// it, for addr2line. Allocates, and reads files. It does not take the dynamic linker's lock, which
/// may be what a thread is stuck with, where the C library has _dl_find_object (glibc 2.35).
std::string name_of_code(const void* address);
/// The same without the distance from its beginning, and without parameters: "serve".
std::string function_at(const void* address);

/// A function as the compiler writes it, without what it returns and takes: "shop::remind" for
/// "void shop::remind(int)", and "main()::<lambda()>" for a lambda.
std::string short_name(std::string_view function);

/// What to call something that has a label, or a type, or code: the first of these that tells.
std::string name_of_work(const char* label, const char* written, const void* code);

}  // namespace verge::detail
