// SPDX-License-Identifier: Apache-2.0

// The parser of HTTP requests: the same bytes in one piece, byte by byte, and in pieces that the
// input chooses give the same requests, and the same refusal.

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "../http1/request_parser.h"
#include "input.h"

using verge::fuzz::expect;

namespace {

/// Everything that a server would see.
std::string outcome(std::string_view bytes, const std::vector<std::size_t>& pieces) {
  const http::limits limits{.header_bytes = 512, .headers = 10, .body_bytes = 1024};
  http::request_parser parser(limits);
  std::string seen;
  std::size_t piece = 0;
  while (!bytes.empty()) {
    const std::size_t length = pieces.empty() ? bytes.size() : pieces[piece++ % pieces.size()];
    std::string_view now = bytes.substr(0, std::max<std::size_t>(length, 1));
    bytes.remove_prefix(now.size());
    while (!now.empty()) {
      const auto [used, what] = parser.feed(now);
      expect(used <= now.size(), "no more is used than was there");
      now.remove_prefix(used);
      switch (what) {
        case http::step::more:
          expect(now.empty(), "all is used before more is wanted");
          break;
        case http::step::expects_continue:
          seen += "continue;";
          break;
        case http::step::complete: {
          const http::request& r = parser.current();
          expect(!r.method().empty() && !r.target().empty(), "a request has a method and a target");
          expect(r.version() == 10 || r.version() == 11, "and a version");
          expect(r.version() == 10 || !r.host().empty(), "and a host");
          expect(r.body().size() <= limits.body_bytes, "and a body within the limit");
          for (const std::string_view part : {r.method(), r.target(), r.path(), r.query(), r.host(),
                                              r.header_lines(), r.body()}) {
            seen.append(part).push_back('|');
          }
          seen += r.keep_alive() ? "keep;" : "close;";
          parser.next();
          break;
        }
        case http::step::failed:
          expect(parser.status() >= 400 && parser.status() < 600, "a refusal has a status");
          expect(!parser.reason().empty(), "and a reason");
          return seen + std::to_string(parser.status()) + std::string(parser.reason());
      }
    }
  }
  return seen + (parser.inside() ? "inside" : "between");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  verge::fuzz::input in(data, size);
  const std::vector<std::size_t> pieces{in.byte() % 16U, in.byte() % 64U, in.byte() % 7U};
  const std::string whole = outcome(in.rest(), {});
  expect(whole == outcome(in.rest(), {1}), "byte by byte it is the same");
  expect(whole == outcome(in.rest(), pieces), "in pieces it is the same");
  return 0;
}
