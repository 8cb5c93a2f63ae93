// SPDX-License-Identifier: Apache-2.0
// Reads an HTTP/1.1 response from bytes that arrive in any pieces, for a client that wants its
// status, a few headers, and the beginning of its body.
//
//   http::response_reader reader;
//   while (!reader.has_head() && reader.feed(bytes)) ...
//   reader.status(), reader.header("location"), reader.body()
//
// The grammar is Boost.Beast's. Interim responses (1xx) are skipped. What comes after a failure,
// after the end, or after as much of the body as is wanted is not looked at.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace http {

class response_reader {
 public:
  /// Keeps at most so many bytes of the body.
  explicit response_reader(std::size_t most_body = 4U << 10);
  ~response_reader();
  response_reader(const response_reader&) = delete;
  response_reader& operator=(const response_reader&) = delete;

  /// Takes what has come. False if nothing more is wanted: see has_head().
  bool feed(std::string_view bytes);
  /// The peer will send no more.
  void finish();

  /// Whether status and headers are there. If feed() is false and this is too, it is no HTTP.
  bool has_head() const noexcept { return has_head_; }
  int status() const noexcept { return status_; }
  /// Empty if there is none.
  std::string header(std::string_view name) const;
  std::string_view body() const noexcept { return body_; }

 private:
  class engine;
  void look();

  const std::size_t most_body_;
  std::unique_ptr<engine> engine_;
  std::string pending_;  ///< bytes that the grammar wants more of
  std::string body_;
  std::size_t fed_{0};
  int status_{0};
  bool has_head_{false};
  bool over_{false};
};

}  // namespace http
