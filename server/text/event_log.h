// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

/// A log for programs and people: one line for each event, as JSON or as text.
///
///   log.write("request", {{"route", "/v1/tubes"}, {"status", 200}});
///   {"time":"2026-11-16T12:00:00.123Z","event":"request","route":"/v1/tubes","status":200}
///   2026-11-16T12:00:00.123Z request route=/v1/tubes status=200
///
/// Bodies, keys, tokens and queries are not logged. write() may be called on any thread; each line
/// is written whole, with one system call.
namespace verge::server {

class event_log {
 public:
  enum class form : std::uint8_t { off, text, json };
  using value = std::variant<std::string_view, std::int64_t, double>;
  struct field {
    field(std::string_view n, std::string_view v) : name(n), what(v) {}
    field(std::string_view n, std::int64_t v) : name(n), what(v) {}
    field(std::string_view n, double v) : name(n), what(v) {}
    std::string_view name;
    value what;
  };

  /// Writes to this descriptor, which it does not own.
  event_log(form f, int to) noexcept : form_(f), to_(to) {}

  bool is_on() const noexcept { return form_ != form::off; }
  void write(std::string_view event, std::initializer_list<field> fields) noexcept;

  /// The line, with its end. For tests as well.
  static std::string line(form f, std::int64_t time, std::string_view event,
                          std::initializer_list<field> fields);

 private:
  const form form_;
  const int to_;
};

}  // namespace verge::server
