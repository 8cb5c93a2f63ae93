// HTTP/1.1 as bytes: requests out of what a connection has received, and responses to be sent.
//
// The parsing itself is libhttp-parser's, which takes bytes as they come and calls back. What is
// here puts a request together out of its calls, keeps it within limits, and says how to answer
// what is not a request. It knows nothing of sockets or time.
#pragma once

#include <http_parser.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace http {

struct limits {
  std::size_t header_bytes{8 << 10};  ///< request line and headers; more is answered with 431
  std::size_t headers{100};           ///< how many; as above
  std::size_t body_bytes{1 << 20};    ///< more is answered with 413
};

/// One request. What it refers to is there until the next one begins.
class request {
 public:
  std::string_view method() const noexcept { return method_; }
  std::string_view target() const noexcept { return {text_.data(), target_}; }
  std::string_view body() const noexcept { return body_; }
  /// The value of a header, whatever the case of its name; empty if there is none.
  std::string_view header(std::string_view name) const noexcept;

 private:
  friend class request_parser;
  struct place {
    std::size_t name, value, end;
  };

  std::string_view method_;
  std::string text_;  ///< the target, then names and values of all headers, one after the other
  std::size_t target_{0};
  std::vector<place> headers_;
  std::string body_;
};

struct response {
  int status{200};
  std::string_view content_type{"text/plain; charset=utf-8"};
  std::string body{};
};

using handler = std::function<response(const request&)>;

/// Appends a response, as bytes.
void write(std::string& to, const response& r, bool keep_alive, bool with_body = true);

/// Answers the requests in a stream of bytes.
class request_parser {
 public:
  request_parser(const limits& l, const handler& h);
  request_parser(const request_parser&) = delete;
  request_parser& operator=(const request_parser&) = delete;

  /// Takes what has been received, and appends the answers to `out`, all those that there are now.
  /// False if nothing more is to be received: the last answer has said so.
  bool feed(std::string_view received, bool last_one, std::string& out);
  /// The same for the end of what is received: nothing, or what to say to half a request.
  void end(std::string& out);

  /// Whether part of a request has come, and which one: they are counted.
  bool inside() const noexcept { return inside_; }
  std::uint64_t number() const noexcept { return number_; }

 private:
  static const http_parser_settings& callbacks() noexcept;
  static request_parser& of(http_parser* p) noexcept {
    return *static_cast<request_parser*>(p->data);
  }
  int begin() noexcept;
  int add(std::string_view piece) noexcept;
  int headers_complete();
  int body(std::string_view piece);
  int complete();
  int refuse(int status) noexcept;

  const limits& limits_;
  const handler& handler_;
  http_parser parser_{};
  request request_;
  std::string* out_{nullptr};
  bool inside_{false};
  bool in_value_{false};
  bool last_one_{false};
  bool over_{false};
  int refused_{0};
  std::uint64_t number_{0};
};

}  // namespace http
