// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace verge::detail {

/// A function in the file of a program or library.
struct elf_symbol {
  std::string name;         ///< mangled
  std::uint64_t offset{0};  ///< from its beginning
};

/// The function that is at an address of a file, by the table of symbols that stays in a file until
/// it is stripped: it has static functions and those in unnamed namespaces too. In a stripped file,
/// by the table of those that are exported. `address` is where it lies in memory, `base` where the
/// file does. Nothing if the file cannot be read, or has no such function.
std::optional<elf_symbol> find_elf_symbol(const char* file, std::uint64_t address,
                                          std::uint64_t base);

}  // namespace verge::detail
