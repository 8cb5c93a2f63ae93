// SPDX-License-Identifier: Apache-2.0
// Requests and answers as lines between processes; peer.h describes them.
#pragma once

#include <iosfwd>
#include <string>

#include "peer.h"

namespace verge::bench {

std::string to_line(const request& r);
/// Throws std::runtime_error for an invalid request.
request parse_request(const std::string& line);

std::string to_line(const answer& a);
/// Throws `unsupported`, or std::runtime_error with the peer's error.
answer parse_answer(const std::string& line);
std::string parse_version(const std::string& line);

/// Answers requests until the input ends.
void serve(const linked_peer& peer, std::istream& in, std::ostream& out);

}  // namespace verge::bench
