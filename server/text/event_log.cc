// SPDX-License-Identifier: Apache-2.0

#include "event_log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "time_text.h"

namespace verge::server {

namespace {

std::string quoted(std::string_view text) {
  using handler = nlohmann::json::error_handler_t;
  return nlohmann::json(text).dump(-1, ' ', true, handler::replace);
}

/// As it is, if it has nothing that a reader of the line would stumble over.
std::string plain_or_quoted(std::string_view text) {
  const auto is_odd = [](char c) { return c <= ' ' || c == '"' || c == '=' || c > '~'; };
  for (const char c : text) {
    if (is_odd(c)) return quoted(text);
  }
  return text.empty() ? "\"\"" : std::string(text);
}

}  // namespace

std::string event_log::line(form f, std::int64_t time, std::string_view event,
                            std::initializer_list<field> fields) {
  const bool json = f == form::json;
  const std::string at = format_rfc3339(time / 1'000'000 * 1'000'000);
  std::string out = json ? fmt::format(R"({{"time":"{}","event":{})", at, quoted(event))
                         : fmt::format("{} {}", at, event);
  for (const field& one : fields) {
    out += json ? fmt::format(",{}:", quoted(one.name)) : fmt::format(" {}=", one.name);
    if (const auto* text = std::get_if<std::string_view>(&one.what)) {
      out += json ? quoted(*text) : plain_or_quoted(*text);
    } else if (const auto* n = std::get_if<std::int64_t>(&one.what)) {
      out += fmt::format("{}", *n);
    } else {
      out += fmt::format("{:.3f}", std::get<double>(one.what));
    }
  }
  return out + (json ? "}\n" : "\n");
}

void event_log::write(std::string_view event, std::initializer_list<field> fields) noexcept {
  if (!is_on()) return;
  try {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    const std::string text =
        line(form_, std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec, event, fields);
    static_cast<void>(!::write(to_, text.data(), text.size()));
  } catch (...) {
    // Out of memory: the line is lost, the server goes on.
  }
}

}  // namespace verge::server
