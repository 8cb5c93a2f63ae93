// SPDX-License-Identifier: Apache-2.0

#include "response_reader.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <algorithm>

namespace http {

namespace {

namespace beast = boost::beast::http;

constexpr std::uint32_t most_header_bytes = 32U << 10;
/// A peer that sends interim responses without an end is given up.
constexpr std::size_t most_bytes = 256U << 10;

}  // namespace

class response_reader::engine : public beast::response_parser<beast::string_body> {
 public:
  engine() {
    header_limit(most_header_bytes);
    body_limit(most_bytes);
    eager(true);
  }
};

response_reader::response_reader(std::size_t most_body)
    : most_body_(most_body), engine_(std::make_unique<engine>()) {}

response_reader::~response_reader() = default;

bool response_reader::feed(std::string_view bytes) {
  fed_ += bytes.size();
  if (over_) return false;
  if (fed_ > most_bytes) {
    over_ = true;
    return false;
  }
  pending_.append(bytes);
  while (!over_ && !pending_.empty()) {
    boost::system::error_code error;
    const std::size_t used =
        engine_->put(boost::asio::buffer(pending_.data(), pending_.size()), error);
    pending_.erase(0, used);
    look();
    if (error == beast::error::need_more) return !over_;
    if (error) over_ = true;
    if (!error && engine_->is_done()) {
      // An interim response: the one that counts follows.
      over_ = has_head_;
      if (!over_) engine_ = std::make_unique<engine>();
    } else if (used == 0) {
      break;
    }
  }
  return !over_;
}

void response_reader::finish() {
  boost::system::error_code ignored;
  if (!over_ && engine_->got_some()) engine_->put_eof(ignored);
  look();
  over_ = true;
}

void response_reader::look() {
  if (!engine_->is_header_done()) return;
  const int status = static_cast<int>(engine_->get().result_int());
  if (status < 200) return;
  has_head_ = true;
  status_ = status;
  const std::string& got = engine_->get().body();
  body_ = got.substr(0, most_body_);
  if (got.size() >= most_body_) over_ = true;
}

std::string response_reader::header(std::string_view name) const {
  if (!has_head_) return {};
  const auto found = engine_->get().find(boost::beast::string_view(name.data(), name.size()));
  if (found == engine_->get().end()) return {};
  return std::string(found->value());
}

}  // namespace http
