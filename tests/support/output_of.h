// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <string>
#include <system_error>

namespace verge::test {

/// What a command of the shell prints, with its errors.
inline std::string output_of(const std::string& command) {
  std::FILE* const out = ::popen((command + " 2>&1").c_str(), "r");
  if (out == nullptr) throw std::system_error(errno, std::generic_category(), command);
  std::string all;
  std::array<char, 4096> bytes;
  for (std::size_t n = 0; (n = std::fread(bytes.data(), 1, bytes.size(), out)) > 0;)
    all.append(bytes.data(), n);
  ::pclose(out);
  return all;
}

}  // namespace verge::test
