// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace verge::detail {

/// The page, one file: page.html.inc. Where it has @nonce@ stands the nonce of its policy.
std::string_view inspect_page() noexcept;

}  // namespace verge::detail
