// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

/// Files that are part of the program: embed.cmake writes them into a source file.
namespace verge::server::web::embedded {

extern const std::string_view page;
extern const std::string_view openapi;
/// 'sha256-...' of the page's only script and of its only style, for its policy.
extern const std::string_view script_digest;
extern const std::string_view style_digest;

}  // namespace verge::server::web::embedded
