// SPDX-License-Identifier: Apache-2.0

#include "response.h"

#include <array>
#include <charconv>
#include <ctime>

namespace http {

namespace {

std::string_view status_text(int status) noexcept {
  switch (status) {
    case 200:
      return "200 OK";
    case 201:
      return "201 Created";
    case 204:
      return "204 No Content";
    case 304:
      return "304 Not Modified";
    case 400:
      return "400 Bad Request";
    case 401:
      return "401 Unauthorized";
    case 403:
      return "403 Forbidden";
    case 404:
      return "404 Not Found";
    case 405:
      return "405 Method Not Allowed";
    case 408:
      return "408 Request Timeout";
    case 409:
      return "409 Conflict";
    case 413:
      return "413 Content Too Large";
    case 415:
      return "415 Unsupported Media Type";
    case 417:
      return "417 Expectation Failed";
    case 421:
      return "421 Misdirected Request";
    case 422:
      return "422 Unprocessable Content";
    case 429:
      return "429 Too Many Requests";
    case 431:
      return "431 Request Header Fields Too Large";
    case 501:
      return "501 Not Implemented";
    case 503:
      return "503 Service Unavailable";
    case 505:
      return "505 HTTP Version Not Supported";
    default:
      return "500 Internal Server Error";
  }
}

/// The Date header's value, renewed once a second.
std::string_view date() {
  thread_local std::time_t made_at = 0;
  thread_local std::array<char, 32> text;
  thread_local std::size_t size = 0;
  timespec now{};
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  if (now.tv_sec != made_at) {
    std::tm parts{};
    gmtime_r(&now.tv_sec, &parts);
    size = std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    made_at = now.tv_sec;
  }
  return {text.data(), size};
}

}  // namespace

response error_response(int status, std::string_view reason) {
  response r{.status = status, .body = std::string(status_text(status))};
  if (!reason.empty()) r.body.append(": ").append(reason);
  r.body += '\n';
  if (status == 503) r.headers = "Retry-After: 1\r\n";
  return r;
}

connection connection_after(const request& r, bool may_stay) noexcept {
  if (!may_stay || !r.keep_alive()) return connection::closes;
  return r.version() >= 11 ? connection::stays : connection::stays_and_says_so;
}

void write_head(std::string& to, const response& r, connection c, std::string_view more) {
  std::array<char, 20> length;
  const auto end = std::to_chars(length.data(), length.data() + length.size(), r.body.size()).ptr;
  to.append("HTTP/1.1 ").append(status_text(r.status));
  to.append("\r\nContent-Type: ").append(r.content_type);
  to.append("\r\nDate: ").append(date());
  to.append("\r\nContent-Length: ").append(length.data(), end);
  if (c == connection::closes) to.append("\r\nConnection: close");
  if (c == connection::stays_and_says_so) to.append("\r\nConnection: keep-alive");
  to.append("\r\n").append(r.headers).append(more).append("\r\n");
}

}  // namespace http
