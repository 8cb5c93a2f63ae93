#include <inspect/page.h>

namespace verge::detail {

namespace {

constexpr char text[] =
#include "page.html.inc"
    ;

}  // namespace

std::string_view inspect_page() noexcept { return {text, sizeof text - 1}; }

}  // namespace verge::detail
