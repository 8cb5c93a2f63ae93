// SPDX-License-Identifier: Apache-2.0
// Parses HTTP/1.0 and HTTP/1.1 requests from bytes that arrive in any pieces.
//
//   http::request_parser parser(limits);
//   while (!bytes.empty()) {
//     const auto [used, what] = parser.feed(bytes);
//     bytes.remove_prefix(used);
//     if (what == http::step::complete) {
//       answer(parser.current());
//       parser.next();
//     } else if (what == http::step::failed) {
//       refuse(parser.status(), parser.reason());         // and close the connection
//     } else if (what == http::step::expects_continue) {
//       say("HTTP/1.1 100 Continue\r\n\r\n");
//     }
//   }
//
// It knows nothing of sockets, time or the meaning of requests. The grammar is Boost.Beast's
// (http::basic_parser). In addition it enforces rules that Beast leaves to its user, all of them
// strict, because request smuggling exploits requests that two servers in a row parse differently:
// docs/http-server.md has the list, with what Go and nginx do.
//
// After a failure nothing more is accepted: it is not known where the next request would begin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "memory_budget.h"
#include "request.h"

namespace http {

struct limits {
  std::size_t header_bytes{8 << 10};  ///< request line and headers; the same again for trailers
  std::size_t headers{100};           ///< how many
  std::size_t body_bytes{1 << 20};
  std::size_t keep_bytes{0};  ///< a buffer of at most this size is kept for the next request
};

enum class step : std::uint8_t {
  more,              ///< more bytes are needed
  expects_continue,  ///< the head is complete, and the client waits for 100 Continue
  complete,          ///< current() is complete: call next()
  failed             ///< not a request that can be accepted: see status()
};

class request_parser {
 public:
  /// `l` and `share` must outlive the parser. Buffers beyond a few kilobytes are counted in the
  /// share, if there is one; a request for which it has no room fails with 503.
  explicit request_parser(const limits& l, memory_share* share = nullptr);
  ~request_parser();
  request_parser(const request_parser&) = delete;
  request_parser& operator=(const request_parser&) = delete;

  struct progress {
    std::size_t used;  ///< how many bytes were consumed; the rest is for the next call
    step what;
  };
  /// Consumes bytes up to the end of a request, or up to where the client must be told to continue.
  /// With step::more it has consumed all of them. Must not be called between complete and next(),
  /// nor after a failure.
  progress feed(std::string_view received);

  /// The request, once it is complete. Its headers can already be read with expects_continue.
  const request& current() const noexcept { return request_; }
  /// Discards the complete request, and frees its memory, unless it is small and is to be kept.
  void next() noexcept;

  /// Returns whether an incomplete request has begun. Empty lines do not begin a request.
  bool inside() const noexcept { return stage_ == stage::head || stage_ == stage::body; }

  /// After a failure: the status to answer with - 400, 413, 417, 431, 501, 503 or 505 - and what is
  /// wrong, in a few words.
  int status() const noexcept { return status_; }
  std::string_view reason() const noexcept { return reason_; }

 private:
  enum class stage : std::uint8_t { between, head, body, complete, failed };
  class engine;

  std::size_t skip_empty_lines(std::string_view in);
  std::size_t feed_head(std::string_view in);
  std::size_t feed_body(std::string_view in);
  std::size_t feed_chunk_line(std::string_view in);
  bool end_line(std::string_view in, std::size_t end, std::string& to);
  void end_head();
  void end_chunk_line(std::string_view line);
  bool read_target();
  bool add_body(std::string_view piece);
  bool append(std::string& to, std::string_view piece, std::size_t most);
  void discard(std::string& buffer) const noexcept;
  void refuse(int status, std::string_view reason) noexcept;

  const limits& limits_;
  memory_share* const share_;
  request request_;
  std::unique_ptr<engine> engine_;  ///< Beast's parser for the current request, and its callbacks
  std::string chunk_lines_;         ///< what Beast wants in one piece: a chunk's size, the trailers
  std::size_t line_bytes_{0};       ///< of the line that has begun
  std::size_t request_line_bytes_{0};
  stage stage_{stage::between};
  bool after_cr_{false};  ///< of an empty line before a request
  bool continue_due_{false};
  int status_{0};
  std::string_view reason_;
};

}  // namespace http
