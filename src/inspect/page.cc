// SPDX-License-Identifier: Apache-2.0

#include <inspect/page.h>

namespace verge::detail {

namespace {

constexpr char page_text[] =
#include "page.html.inc"
    ;

}  // namespace

std::string_view inspect_page() noexcept { return {page_text, sizeof page_text - 1}; }

}  // namespace verge::detail
