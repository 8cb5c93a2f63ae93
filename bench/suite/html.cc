// SPDX-License-Identifier: Apache-2.0

#include "html.h"

#include <stdexcept>
#include <string_view>

#include "page.h"

namespace verge::bench {
namespace {

/// JSON within a script element: no text in it may look like the element's end.
std::string within_script(const std::string& json) {
  std::string text;
  for (const char c : json) {
    if (c == '/' && text.ends_with('<')) text += '\\';
    text += c;
  }
  return text;
}

}  // namespace

std::string to_html(const run_report& report) {
  constexpr std::string_view mark = "@REPORT@";
  std::string text = page;
  const auto at = text.find(mark);
  if (at == std::string::npos) throw std::logic_error("the page has no place for the report");
  return text.replace(at, mark.size(), within_script(to_json(report)));
}

}  // namespace verge::bench
