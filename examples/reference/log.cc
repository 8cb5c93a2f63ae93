// SPDX-License-Identifier: Apache-2.0

#include <verge/log.h>
#include <verge/verge.h>

namespace reference_log {

void my_log(const char* level, std::string_view text) noexcept;

void example() {
  verge::set_log_handler([](verge::log_level level, std::string_view text) noexcept {
    my_log(level == verge::log_level::fatal ? "FATAL" : "WARN", text);
  });
}

}  // namespace reference_log
