// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "../model/push.h"

/// Push settings as the text of a note. What a newer version has added is not lost on an older one:
/// that refuses the store (records.h).
namespace verge::server {

std::string push_note(const push_settings& s);
/// Throws store_error if it is none.
push_settings parse_push_note(std::string_view text);

}  // namespace verge::server
