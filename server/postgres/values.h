// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Values as PostgreSQL's protocol has them in its binary form: numbers are big-endian, and an
/// array is a header with the length in front of each element. All columns that are sent are int8,
/// bytea or arrays of them, so that there is one form for each.
namespace verge::server::postgres {

/// The parameters of one statement.
class parameters {
 public:
  parameters& number(std::int64_t n);
  parameters& bytes(std::string_view b);
  parameters& numbers(const std::vector<std::int64_t>& all);
  parameters& blobs(const std::vector<std::string_view>& all);

  const std::vector<std::string>& values() const noexcept { return values_; }

 private:
  std::vector<std::string> values_;
};

std::int64_t number_at(std::string_view value);

}  // namespace verge::server::postgres
