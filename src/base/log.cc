// SPDX-License-Identifier: Apache-2.0

#include <base/log.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdio>

namespace verge {

namespace {

void print(log_level /*level*/, std::string_view text) noexcept {
  // One call, so that lines of several threads do not mix.
  std::fprintf(stderr, "verge: %.*s\n", static_cast<int>(text.size()), text.data());
}

constinit std::atomic<log_handler> current{&print};

}  // namespace

log_handler set_log_handler(log_handler handler) noexcept {
  const log_handler before = current.exchange(handler != nullptr ? handler : &print);
  return before != &print ? before : nullptr;
}

void detail::log(log_level level, const char* format, ...) noexcept {
  std::array<char, 1024> line;
  std::va_list arguments;
  va_start(arguments, format);
  const int n = std::vsnprintf(line.data(), line.size(), format, arguments);
  va_end(arguments);
  if (n < 0) return;
  const auto length = std::min(static_cast<std::size_t>(n), line.size() - 1);
  current.load(std::memory_order_acquire)(level, std::string_view(line.data(), length));
}

}  // namespace verge
