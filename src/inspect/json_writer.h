// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include <base/json_text.h>

namespace verge::detail {

/// Writes JSON from the beginning to the end; the caller closes what it opens.
class json_writer {
 public:
  json_writer& open(char bracket) {
    separate();
    text_ += bracket;
    first_ = true;
    return *this;
  }
  json_writer& close(char bracket) {
    text_ += bracket;
    first_ = false;
    return *this;
  }
  /// The name of the member that comes next.
  json_writer& name(std::string_view n) {
    separate();
    text_ += json_string(n);
    text_ += ':';
    first_ = true;
    return *this;
  }
  json_writer& value(std::string_view text) { return raw(json_string(text)); }
  json_writer& value(const char* text) { return value(std::string_view(text)); }
  json_writer& value(bool b) { return raw(b ? "true" : "false"); }
  template <std::integral T>
  json_writer& value(T n) {
    return raw(std::to_string(n));
  }
  json_writer& value(double d) {
    char text[32];
    std::snprintf(text, sizeof text, "%.6g", d);
    return raw(text);
  }
  template <class T>
  json_writer& member(std::string_view n, const T& v) {
    name(n);
    return value(v);
  }

  std::string take() { return std::move(text_); }

 private:
  json_writer& raw(std::string_view v) {
    separate();
    text_ += v;
    return *this;
  }
  void separate() {
    if (!first_) text_ += ',';
    first_ = false;
  }

  std::string text_;
  bool first_{true};
};

}  // namespace verge::detail
