// SPDX-License-Identifier: Apache-2.0
// A request as request_parser makes it.
#pragma once

#include <string>
#include <string_view>

namespace http {

/// One request. Everything it refers to is valid until its parser proceeds to the next one.
class request {
 public:
  request() = default;
  request(const request&) = delete;
  request& operator=(const request&) = delete;

  std::string_view method() const noexcept { return method_; }
  /// The target as it was sent: "/a?b=1", "http://host/a?b=1", or "*".
  std::string_view target() const noexcept { return target_; }
  /// The target's path, from "/" to the query: the same in origin form and in absolute form. "*"
  /// for OPTIONS of the server as a whole. Escapes are not decoded; they are well formed.
  std::string_view path() const noexcept { return path_; }
  /// What follows the "?", or nothing.
  std::string_view query() const noexcept { return query_; }
  /// The authority of a target in absolute form, else the value of Host. Empty only in HTTP/1.0.
  std::string_view host() const noexcept { return host_; }
  /// 10 for HTTP/1.0, 11 for HTTP/1.1.
  int version() const noexcept { return version_; }
  /// Whether the client may send another request on this connection.
  bool keep_alive() const noexcept { return keep_alive_; }

  /// The value of the first header of this name, whatever the case; empty if there is none.
  std::string_view header(std::string_view name) const noexcept;
  /// The lines of all headers, "Name: value" CRLF, checked but otherwise as they were sent.
  std::string_view header_lines() const noexcept { return header_lines_; }
  std::string_view body() const noexcept { return body_; }

 private:
  friend class request_parser;

  std::string head_;  ///< from the method to the empty line; what is below refers to it
  std::string_view method_;
  std::string_view target_;
  std::string_view path_;
  std::string_view query_;
  std::string_view host_;
  std::string_view header_lines_;
  std::string body_;
  int version_{11};
  bool keep_alive_{false};
};

}  // namespace http
