// The lines that requests and answers are between processes; peer.h describes them.
#pragma once

#include <iosfwd>
#include <string>

#include "peer.h"

namespace verge::bench {

std::string to_line(const request& r);
/// Throws std::runtime_error for a line that is no request.
request parse_request(const std::string& line);

std::string to_line(const answer& a);
/// Throws `unsupported`, or std::runtime_error with what the peer said is wrong.
answer parse_answer(const std::string& line);
std::string parse_version(const std::string& line);

/// Answers requests until the input ends.
void serve(const linked_peer& peer, std::istream& in, std::ostream& out);

}  // namespace verge::bench
