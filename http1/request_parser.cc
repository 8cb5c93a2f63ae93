// SPDX-License-Identifier: Apache-2.0

#include "request_parser.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/rfc7230.hpp>
#include <limits>

#include "request_syntax.h"

namespace http {

namespace {

namespace beast = boost::beast::http;
using boost::beast::error_code;
using beast_text = boost::beast::string_view;
using namespace std::string_view_literals;

std::string_view of(beast_text t) noexcept { return {t.data(), t.size()}; }

constexpr bool is_blank(char c) noexcept { return c == ' ' || c == '\t'; }

std::string_view reason_of(error_code error) noexcept {
  switch (static_cast<beast::error>(error.value())) {
    case beast::error::bad_method:
      return "bad method";
    case beast::error::bad_target:
      return "bad target";
    case beast::error::bad_version:
      return "bad version";
    case beast::error::bad_field:
      return "bad header name";
    case beast::error::bad_value:
      return "bad header value";
    case beast::error::bad_line_ending:
      return "CR without LF";
    case beast::error::bad_content_length:
      return "bad Content-Length";
    case beast::error::bad_transfer_encoding:
      return "bad Transfer-Encoding";
    case beast::error::bad_chunk:
    case beast::error::bad_chunk_extension:
      return "bad chunk";
    default:
      return "malformed";
  }
}

/// Whether the third and last word of a request line is a version that is not supported.
bool names_a_version(std::string_view line) noexcept {
  constexpr std::string_view pattern = "HTTP/d.d\r\n";
  const auto first = line.find(' ');
  const auto second = line.find(' ', first + 1);
  if (first == line.npos || second == line.npos) return false;
  const std::string_view version = line.substr(second + 1);
  return std::equal(
      version.begin(), version.end(), pattern.begin(), pattern.end(),
      [](char c, char wanted) { return wanted == 'd' ? c >= '0' && c <= '9' : c == wanted; });
}

}  // namespace

// ---- Beast's side -------------------------------------------------------------------------------

/// Beast's parser for one request. It is given the request line, the other lines of the head, and
/// the line or lines of a chunk each in one piece, so it never has to ask for more.
class request_parser::engine final : public beast::basic_parser<true> {
 public:
  explicit engine(request_parser& owner) : owner_(owner) {
    body_limit(owner.limits_.body_bytes);
    header_limit(std::numeric_limits<std::uint32_t>::max());  // feed_head() checks that
  }

  /// Passes a piece to Beast. Returns true if it has consumed all of it; otherwise the request is
  /// rejected.
  bool take(std::string_view piece) {
    error_code error;
    const std::size_t used = put({piece.data(), piece.size()}, error);
    // After the request line it asks for the rest.
    if (used == piece.size() && (!error || error == beast::error::need_more)) return true;
    refuse(error);
    return false;
  }
  /// The same for bytes of a body, of which it consumes as many as belong to it.
  std::size_t take_some(std::string_view piece) {
    error_code error;
    const std::size_t used = put({piece.data(), piece.size()}, error);
    if (error) refuse(error);
    return used;
  }

  bool expects_continue() const noexcept { return expects_continue_; }
  bool in_chunk() const noexcept { return chunk_left_ > 0; }
  bool close() const noexcept { return close_; }
  bool keep() const noexcept { return keep_; }
  /// What stands between the chunks of a body: whether the data of one has just ended, whether the
  /// line of the last one has come, and what extensions there were.
  bool chunk_ended{false};
  bool in_trailers{false};
  std::size_t extension_bytes{0};

 private:
  void refuse(error_code error) noexcept {
    if (owner_.status_ != 0) return;
    if (error == beast::error::body_limit) return owner_.refuse(413, "body too large");
    if (error == beast::error::bad_version && names_a_version(owner_.request_.head_))
      return owner_.refuse(505, "neither HTTP/1.0 nor HTTP/1.1");
    owner_.refuse(400, reason_of(error));
  }
  void refuse(int status, std::string_view reason, error_code& error) noexcept {
    owner_.refuse(status, reason);
    error = beast::error::bad_value;
  }

  void on_request_impl(beast::verb /*verb*/, beast_text method, beast_text /*target*/, int version,
                       error_code& error) override {
    owner_.request_.version_ = version;
    if (!is_method(of(method))) return refuse(400, "bad method", error);
    if (method == "CONNECT") return refuse(501, "this is no proxy", error);
  }

  void on_field_impl(beast::field name, beast_text, beast_text value, error_code& error) override {
    if (++fields_ > owner_.limits_.headers) return refuse(431, "too many headers", error);
    if (is_header_done()) return;  // a trailer, which changes nothing
    switch (name) {
      case beast::field::host:
        if (has_host_) return refuse(400, "two Host headers", error);
        if (!is_authority(of(value))) return refuse(400, "bad Host", error);
        has_host_ = true;
        owner_.request_.host_ = of(value);
        break;
      case beast::field::content_length:
        if (has_length_) return refuse(400, "two Content-Length headers", error);
        if (!is_length(of(value))) return refuse(400, "bad Content-Length", error);
        has_length_ = true;
        break;
      case beast::field::transfer_encoding:
        if (has_encoding_) return refuse(400, "two Transfer-Encoding headers", error);
        if (owner_.request_.version_ < 11)
          return refuse(400, "Transfer-Encoding in HTTP/1.0", error);
        if (!same_name(of(value), "chunked")) return refuse(501, "only chunked is known", error);
        has_encoding_ = true;
        break;
      case beast::field::connection:
        for (const beast_text token : beast::token_list(value)) {
          if (same_name(of(token), "close")) close_ = true;
          if (same_name(of(token), "keep-alive")) keep_ = true;
        }
        break;
      case beast::field::expect:
        if (!same_name(of(value), "100-continue"))
          return refuse(417, "only 100-continue is known", error);
        expects_continue_ = owner_.request_.version_ >= 11;
        break;
      default:
        break;
    }
  }
  void on_header_impl(error_code& error) override {
    if (!has_host_ && owner_.request_.version_ >= 11) refuse(400, "no Host header", error);
  }

  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  std::size_t on_body_impl(beast_text piece, error_code& error) override {
    if (!owner_.add_body(of(piece))) error = beast::error::bad_value;
    return piece.size();
  }
  void on_chunk_header_impl(std::uint64_t size, beast_text, error_code&) override {
    chunk_left_ = size;
  }
  std::size_t on_chunk_body_impl(std::uint64_t, beast_text piece, error_code& error) override {
    chunk_left_ -= piece.size();
    chunk_ended = chunk_left_ == 0;
    return on_body_impl(piece, error);
  }
  void on_finish_impl(error_code&) override {}
  void on_response_impl(int, beast_text, int, error_code&) override {}

  request_parser& owner_;
  std::uint64_t chunk_left_{0};
  std::size_t fields_{0};
  bool has_host_{false};
  bool has_length_{false};
  bool has_encoding_{false};
  bool close_{false};
  bool keep_{false};
  bool expects_continue_{false};
};

// ---- The stages of a request --------------------------------------------------------------------

request_parser::request_parser(const limits& l, memory_share* share) : limits_(l), share_(share) {}
request_parser::~request_parser() = default;

request_parser::progress request_parser::feed(std::string_view received) {
  std::size_t used = 0;
  if (stage_ == stage::between) used = skip_empty_lines(received);
  if (stage_ == stage::head) used += feed_head(received.substr(used));
  if (continue_due_ && stage_ == stage::body) {
    continue_due_ = false;
    return {used, step::expects_continue};
  }
  if (stage_ == stage::body) used += feed_body(received.substr(used));
  if (stage_ == stage::failed) return {used, step::failed};
  return {used, stage_ == stage::complete ? step::complete : step::more};
}

void request_parser::next() noexcept {
  engine_.reset();
  discard(request_.head_);
  discard(request_.body_);
  discard(chunk_lines_);
  if (share_ != nullptr) share_->hold(memory_share::request, 0);
  request_.host_ = {};
  line_bytes_ = 0;
  stage_ = stage::between;
}

void request_parser::discard(std::string& buffer) const noexcept {
  if (buffer.capacity() <= limits_.keep_bytes) {
    buffer.clear();
  } else {
    std::string().swap(buffer);
  }
}

void request_parser::refuse(int status, std::string_view reason) noexcept {
  status_ = status;
  reason_ = reason;
  stage_ = stage::failed;
}

/// Empty lines before a request are ignored, as RFC 9112 2.2 recommends. They do not begin a
/// request.
std::size_t request_parser::skip_empty_lines(std::string_view in) {
  std::size_t at = 0;
  for (; at < in.size(); ++at) {
    if (after_cr_ ? in[at] == '\n' : in[at] == '\r') {
      after_cr_ = !after_cr_;
      continue;
    }
    if (after_cr_ || !is_method_letter(in[at])) {
      refuse(400, "bad method");
      break;
    }
    engine_ = std::make_unique<engine>(*this);
    request_.head_.reserve(std::min(in.size() - at, limits_.header_bytes));
    stage_ = stage::head;
    break;
  }
  return at;
}

/// Appends `in` up to `end` to the lines in `to`. Returns true if that ended a valid line: it ends
/// in CRLF, and does not continue the one before it.
bool request_parser::end_line(std::string_view in, std::size_t end, std::string& to) {
  if (line_bytes_ == 0 && !to.empty() && is_blank(in.front())) {
    refuse(400, "a line that is folded, or begins with a space");
    return false;
  }
  if (end > limits_.header_bytes - to.size()) {
    refuse(431, "headers too large");
    return false;
  }
  if (!append(to, in.substr(0, end), limits_.header_bytes)) return false;
  line_bytes_ += end;
  if (to.back() != '\n') return false;
  if (line_bytes_ < 2 || to[to.size() - 2] != '\r') {
    refuse(400, "LF without CR");
    return false;
  }
  return true;
}

/// Gathers the head, line by line. The request line is passed to Beast as soon as it is complete,
/// so that what is not HTTP is rejected at once; the headers when all of them are.
std::size_t request_parser::feed_head(std::string_view in) {
  std::size_t at = 0;
  while (at < in.size() && stage_ == stage::head) {
    const std::string_view rest = in.substr(at);
    const std::size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
    const bool ended = end_line(rest, end, request_.head_);
    at += end;
    if (!ended) continue;
    const std::size_t line = std::exchange(line_bytes_, 0);
    if (line == request_.head_.size()) {
      engine_->take(request_.head_);
      request_line_bytes_ = line;
    } else if (line == 2) {
      end_head();
    }
  }
  return at;
}

void request_parser::end_head() {
  const std::string_view head = request_.head_;
  const std::string_view rest = head.substr(request_line_bytes_);
  request_.header_lines_ = rest.substr(0, rest.size() - 2);
  if (!engine_->take(rest) || !read_target()) return;
  request_.keep_alive_ = !engine_->close() && (request_.version_ >= 11 || engine_->keep());
  continue_due_ = engine_->expects_continue() && !engine_->is_done();
  stage_ = engine_->is_done() ? stage::complete : stage::body;
}

bool request_parser::read_target() {
  const std::string_view head = request_.head_;
  const std::size_t space = head.find(' ');
  request_.method_ = head.substr(0, space);
  request_.target_ = head.substr(space + 1, head.find(' ', space + 1) - space - 1);
  const auto parts = split_target(request_.method_, request_.target_);
  if (!parts) {
    refuse(400, "bad target");
    return false;
  }
  request_.path_ = parts->path;
  request_.query_ = parts->query;
  if (!parts->authority.empty()) request_.host_ = parts->authority;
  return true;
}

// ---- The body -----------------------------------------------------------------------------------

std::size_t request_parser::feed_body(std::string_view in) {
  std::size_t at = 0;
  while (at < in.size() && stage_ == stage::body) {
    if (!engine_->chunked() || engine_->in_chunk()) {
      at += engine_->take_some(in.substr(at));
      if (engine_->is_done()) stage_ = stage::complete;
    } else {
      at += feed_chunk_line(in.substr(at));
    }
  }
  return at;
}

/// Between chunks there are lines. Beast takes the CRLF that ends a chunk together with the size of
/// the next one, and the last size together with the trailers.
std::size_t request_parser::feed_chunk_line(std::string_view in) {
  // A chunk that was announced with five bytes and has six is rejected at once.
  if (engine_->chunk_ended &&
      !"\r\n"sv.substr(line_bytes_).starts_with(in.substr(0, 2 - line_bytes_))) {
    refuse(400, "a chunk that does not end in CRLF");
    return 0;
  }
  const std::size_t begin = chunk_lines_.size() - line_bytes_;
  const std::size_t end = std::min(in.find('\n'), in.size() - 1) + 1;
  if (!end_line(in, end, chunk_lines_)) return end;
  end_chunk_line(std::string_view(chunk_lines_).substr(begin, line_bytes_ - 2));
  line_bytes_ = 0;
  return end;
}

void request_parser::end_chunk_line(std::string_view line) {
  if (std::exchange(engine_->chunk_ended, false)) return;
  if (!engine_->in_trailers) {
    if (!is_chunk_line(line)) return refuse(400, "bad chunk size");
    engine_->extension_bytes += line.size() - std::min(line.find(';'), line.size());
    if (engine_->extension_bytes > limits_.header_bytes)
      return refuse(431, "chunk extensions too large");
    engine_->in_trailers = is_last_chunk(line);
    if (engine_->in_trailers) return;
  } else if (!line.empty()) {
    return;
  }
  if (!engine_->take(chunk_lines_)) return;
  chunk_lines_.clear();
  if (engine_->is_done()) stage_ = stage::complete;
}

bool request_parser::add_body(std::string_view piece) {
  return append(request_.body_, piece, engine_->content_length().value_or(limits_.body_bytes));
}

// ---- Memory -------------------------------------------------------------------------------------

/// Appends to a buffer that will have at most `limit` bytes. It grows by doubling, so that an
/// announced body that is never sent takes no memory.
bool request_parser::append(std::string& to, std::string_view piece, std::size_t most) {
  const std::size_t size = to.size() + piece.size();
  if (size > to.capacity()) {
    constexpr std::size_t not_counted = 4 << 10;
    const std::size_t room = std::max(size, std::min(2 * to.capacity(), most));
    const std::size_t all = request_.head_.capacity() + request_.body_.capacity() +
                            chunk_lines_.capacity() - to.capacity() + room;
    if (share_ != nullptr && all > not_counted && !share_->hold(memory_share::request, all)) {
      refuse(503, "out of memory for requests");
      return false;
    }
    to.reserve(room);
  }
  to.append(piece);
  return true;
}

// ---- What the request says ----------------------------------------------------------------------

std::string_view request::header(std::string_view name) const noexcept {
  for (std::string_view rest = header_lines_; !rest.empty();) {
    const std::size_t colon = rest.find(':');
    const std::size_t end = rest.find("\r\n", colon);
    if (same_name(rest.substr(0, colon), name)) {
      std::string_view value = rest.substr(colon + 1, end - colon - 1);
      while (!value.empty() && is_blank(value.front())) value.remove_prefix(1);
      while (!value.empty() && is_blank(value.back())) value.remove_suffix(1);
      return value;
    }
    rest.remove_prefix(end + 2);
  }
  return {};
}

}  // namespace http
