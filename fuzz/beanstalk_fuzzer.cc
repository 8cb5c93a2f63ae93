// SPDX-License-Identifier: Apache-2.0

// The parser of beanstalk's protocol: the same bytes in one piece, byte by byte, and in pieces that
// the input chooses give the same commands.

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "../server/beanstalk/parser.h"
#include "input.h"

using verge::fuzz::expect;
using namespace verge::server;

namespace {

constexpr std::uint32_t body_limit = 300;

std::string to_text(const command& c) {
  std::string text = std::to_string(static_cast<int>(c.what)) + ',' +
                     std::to_string(static_cast<int>(c.prepared.what)) + '[';
  for (const new_task& t : c.tasks) {
    expect(t.body.size() <= body_limit, "no body is longer than allowed");
    expect(t.delay >= 0 && t.ttr >= 0 && t.backoff >= 0, "no length of time is negative");
    text += std::to_string(t.priority) + ',' + std::to_string(t.delay) + ',' +
            std::to_string(t.ttr) + ',' + t.key + ',' + t.dead_letter + ',' + t.body + ';';
  }
  return text + ']';
}

std::string commands_of(std::string_view bytes, const std::vector<std::size_t>& pieces) {
  beanstalk::parser parser(body_limit);
  std::string seen;
  std::size_t piece = 0;
  while (!bytes.empty() && !parser.has_quit()) {
    const std::size_t length = pieces.empty() ? bytes.size() : pieces[piece++ % pieces.size()];
    const std::string_view now = bytes.substr(0, std::max<std::size_t>(length, 1));
    bytes.remove_prefix(now.size());
    parser.feed(now);
    while (const auto c = parser.next()) seen += to_text(*c);
  }
  return seen;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  verge::fuzz::input in(data, size);
  const std::vector<std::size_t> pieces{in.byte() % 16U, in.byte() % 64U, in.byte() % 7U};
  const std::string whole = commands_of(in.rest(), {});
  expect(whole == commands_of(in.rest(), {1}), "byte by byte it is the same");
  expect(whole == commands_of(in.rest(), pieces), "in pieces it is the same");
  return 0;
}
