#include "http.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>

namespace http {

namespace {

bool same_letters(std::string_view a, std::string_view b) noexcept {
  const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return small(x) == small(y); });
}

std::string_view reason(int status) noexcept {
  switch (status) {
    case 200:
      return "200 OK";
    case 400:
      return "400 Bad Request";
    case 404:
      return "404 Not Found";
    case 405:
      return "405 Method Not Allowed";
    case 408:
      return "408 Request Timeout";
    case 413:
      return "413 Content Too Large";
    case 431:
      return "431 Request Header Fields Too Large";
    default:
      return "500 Internal Server Error";
  }
}

/// The Date header's value, made anew once a second.
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

/// Not what the user's handler wants answered: what is wrong with the bytes.
response error_response(int status) {
  return {.status = status, .body = std::string(reason(status)) + "\n"};
}

}  // namespace

std::string_view request::header(std::string_view name) const noexcept {
  const std::string_view all = text_;
  for (const place& h : headers_) {
    if (same_letters(all.substr(h.name, h.value - h.name), name))
      return all.substr(h.value, h.end - h.value);
  }
  return {};
}

void write(std::string& to, const response& r, bool keep_alive, bool with_body) {
  std::array<char, 20> length;
  const auto end = std::to_chars(length.data(), length.data() + length.size(), r.body.size()).ptr;
  to.append("HTTP/1.1 ").append(reason(r.status));
  to.append("\r\nContent-Type: ").append(r.content_type);
  to.append("\r\nDate: ").append(date());
  to.append("\r\nContent-Length: ").append(length.data(), end);
  if (!keep_alive) to.append("\r\nConnection: close");
  to.append("\r\n\r\n");
  if (with_body) to.append(r.body);
}

request_parser::request_parser(const limits& l, const handler& h) : limits_(l), handler_(h) {
  http_parser_init(&parser_, HTTP_REQUEST);
  parser_.data = this;
}

bool request_parser::feed(std::string_view received, bool last_one, std::string& out) {
  out_ = &out;
  last_one_ = last_one;
  const std::size_t used =
      http_parser_execute(&parser_, &callbacks(), received.data(), received.size());
  if (over_) return false;
  if (used == received.size() && HTTP_PARSER_ERRNO(&parser_) == HPE_OK) return true;
  const bool too_long = HTTP_PARSER_ERRNO(&parser_) == HPE_HEADER_OVERFLOW;
  write(out, error_response(refused_ != 0 ? refused_ : too_long ? 431 : 400), false);
  return false;
}

void request_parser::end(std::string& out) {
  if (inside_) write(out, error_response(400), false);
}

int request_parser::begin() noexcept {
  inside_ = true;
  ++number_;
  in_value_ = false;
  request_.text_.clear();
  request_.target_ = 0;
  request_.headers_.clear();
  request_.body_.clear();
  return 0;
}

int request_parser::refuse(int status) noexcept {
  refused_ = status;
  return -1;  // not 1, which means something else when the headers are complete
}

int request_parser::add(std::string_view piece) noexcept {
  if (request_.text_.size() + piece.size() > limits_.header_bytes) return refuse(431);
  request_.text_.append(piece);
  return 0;
}

int request_parser::headers_complete() {
  parser_.upgrade = 0;  // not offered here, so the request is one like others
  request_.method_ = http_method_str(static_cast<http_method>(parser_.method));
  const bool has_length = (parser_.flags & F_CONTENTLENGTH) != 0;
  if (has_length && parser_.content_length > limits_.body_bytes) return refuse(413);
  if (same_letters(request_.header("expect"), "100-continue"))
    out_->append("HTTP/1.1 100 Continue\r\n\r\n");
  return 0;
}

int request_parser::body(std::string_view piece) {
  if (request_.body_.size() + piece.size() > limits_.body_bytes) return refuse(413);
  request_.body_.append(piece);
  return 0;
}

int request_parser::complete() {
  inside_ = false;
  bool keep_alive = http_should_keep_alive(&parser_) != 0 && !last_one_;
  response r;
  try {
    r = handler_(request_);
  } catch (...) {
    r = error_response(500);
    keep_alive = false;
  }
  write(*out_, r, keep_alive, parser_.method != HTTP_HEAD);
  over_ = !keep_alive;
  if (over_) http_parser_pause(&parser_, 1);
  return 0;
}

const http_parser_settings& request_parser::callbacks() noexcept {
  static constexpr http_parser_settings all{
      .on_message_begin = [](http_parser* p) { return of(p).begin(); },
      .on_url =
          [](http_parser* p, const char* data, std::size_t size) {
            const int failed = of(p).add({data, size});
            of(p).request_.target_ = of(p).request_.text_.size();
            return failed;
          },
      .on_status = nullptr,
      .on_header_field =
          [](http_parser* p, const char* data, std::size_t size) {
            request_parser& self = of(p);
            request& r = self.request_;
            if (r.headers_.empty() || self.in_value_) {
              if (r.headers_.size() == self.limits_.headers) return self.refuse(431);
              const std::size_t here = r.text_.size();
              r.headers_.push_back({here, here, here});
              self.in_value_ = false;
            }
            const int failed = self.add({data, size});
            r.headers_.back().value = r.headers_.back().end = r.text_.size();
            return failed;
          },
      .on_header_value =
          [](http_parser* p, const char* data, std::size_t size) {
            request_parser& self = of(p);
            self.in_value_ = true;
            const int failed = self.add({data, size});
            if (!self.request_.headers_.empty())
              self.request_.headers_.back().end = self.request_.text_.size();
            return failed;
          },
      .on_headers_complete = [](http_parser* p) { return of(p).headers_complete(); },
      .on_body =
          [](http_parser* p, const char* data, std::size_t size) {
            return of(p).body({data, size});
          },
      .on_message_complete = [](http_parser* p) { return of(p).complete(); },
      .on_chunk_header = nullptr,
      .on_chunk_complete = nullptr};
  return all;
}

}  // namespace http
