// SPDX-License-Identifier: Apache-2.0

// Addresses as text: what is parsed is printed as text that parses to the same.

#include <verge/endpoint.h>

#include <string>
#include <string_view>

#include "input.h"

using verge::endpoint;
using verge::fuzz::expect;

namespace {

void there_and_back(const endpoint& e) {
  const std::string text = e.to_string();
  const auto again = endpoint::parse(text);
  expect(static_cast<bool>(again), "what is printed is parsed");
  expect(again.value == e, "and is the same");
  expect(again.value.to_string() == text, "and prints the same");
  expect(endpoint::from(e.address(), e.size()) == e, "the kernel's form says all");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = verge::fuzz::input(data, size).rest();
  if (const auto e = endpoint::parse(text)) {
    expect(e.value.kind() != endpoint::family::none, "a parsed address is one");
    there_and_back(e.value);
  }
  if (const auto e = endpoint::path(text)) {
    expect(e.value.kind() == endpoint::family::unix_path, "a path is a path");
    expect(endpoint::from(e.value.address(), e.value.size()) == e.value, "the kernel's form");
    expect(e.value.path() == text, "a path is what it was");
  }
  return 0;
}
