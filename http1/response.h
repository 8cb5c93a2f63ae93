// SPDX-License-Identifier: Apache-2.0
// Responses, and their form as bytes.
#pragma once

#include <string>
#include <string_view>

#include "request.h"

namespace http {

struct response {
  int status{200};
  std::string_view content_type{"text/plain; charset=utf-8"};
  /// Further headers, each with CRLF: "Allow: GET\r\n".
  std::string headers{};
  std::string body{};
};

/// An error response: "400 Bad Request: two Host headers".
response error_response(int status, std::string_view reason = {});

/// Whether the connection is kept, and how that is announced: it is the default of HTTP/1.1, while
/// an HTTP/1.0 client waits for the end of the connection unless it is told.
enum class connection { closes, stays, stays_and_says_so };
connection connection_after(const request& r, bool may_stay) noexcept;

/// Appends the head of a response, up to where its body begins. `more` are headers that a server
/// sends with every response.
void write_head(std::string& to, const response& r, connection c, std::string_view more = {});

}  // namespace http
