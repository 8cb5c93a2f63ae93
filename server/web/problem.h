// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "http1/response.h"

/// Errors as RFC 9457 has them: a status, a type that programs compare, and a detail that says what
/// to do.
namespace verge::server::web {

struct problem {
  int status{400};
  /// The last part of the type: "bad-value" for urn:verge:problem:bad-value.
  std::string_view type;
  std::string detail;
  /// What it is about: a JSON pointer into the body ("/0/delay") or the name of a parameter.
  std::string where{};
  std::string headers{};
};

/// Thrown where a request is read, and answered where it is served.
class refused : public std::exception {
 public:
  explicit refused(problem p) : problem_(std::move(p)) {}
  const problem& what_is_wrong() const noexcept { return problem_; }
  const char* what() const noexcept override { return problem_.detail.c_str(); }

 private:
  problem problem_;
};

/// The title of a type: the same for all problems of it.
std::string_view title_of(std::string_view type) noexcept;
http::response response_of(const problem& p);

}  // namespace verge::server::web
