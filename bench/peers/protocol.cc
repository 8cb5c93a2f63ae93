// SPDX-License-Identifier: Apache-2.0

#include "protocol.h"

#include <charconv>
#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>

namespace verge::bench {
namespace {

using nlohmann::json;

template <class Number>
Number number_in(const std::string& word, std::size_t from) {
  Number n{};
  const char* const end = word.data() + word.size();
  const auto [stopped, code] = std::from_chars(word.data() + from, end, n);
  if (code != std::errc{} || stopped != end) {
    throw std::runtime_error("'" + word + "' is not NAME=NUMBER");
  }
  return n;
}

/// The line as an object; what the peer could not do is thrown.
json checked(const std::string& line) {
  json j = json::parse(line, nullptr, false);
  if (!j.is_object()) throw std::runtime_error("it answered with no JSON: " + line.substr(0, 200));
  if (j.contains("unsupported")) throw unsupported(j["unsupported"].get<std::string>());
  if (j.contains("error")) throw std::runtime_error(j["error"].get<std::string>());
  return j;
}

std::string say(const char* key, const std::string& text) { return json{{key, text}}.dump(); }

std::string answer_to(const linked_peer& peer, const std::string& line) {
  try {
    if (line == "version") return say("version", peer.version);
    return to_line(peer.run(parse_request(line)));
  } catch (const unsupported& e) {
    return say("unsupported", e.what());
  } catch (const std::exception& e) {
    return say("error", e.what());
  }
}

}  // namespace

std::string to_line(const request& r) {
  return r.workload + " timers=" + std::to_string(r.timers) +
         " threads=" + std::to_string(r.threads) +
         " milliseconds=" + std::to_string(r.milliseconds) + " seed=" + std::to_string(r.seed);
}

request parse_request(const std::string& line) {
  request r;
  std::istringstream words(line);
  if (!(words >> r.workload)) {
    throw std::runtime_error("an empty request; send: WORKLOAD [NAME=NUMBER ...]");
  }
  for (std::string word; words >> word;) {
    const auto value = word.find('=') + 1;
    const std::string name = word.substr(0, value);
    if (name == "timers=") {
      r.timers = number_in<std::size_t>(word, value);
    } else if (name == "threads=") {
      r.threads = number_in<unsigned>(word, value);
    } else if (name == "milliseconds=") {
      r.milliseconds = number_in<unsigned>(word, value);
    } else if (name == "seed=") {
      r.seed = number_in<std::uint64_t>(word, value);
    } else {
      throw std::runtime_error("there is no parameter '" + word + "'");
    }
  }
  return r;
}

std::string to_line(const answer& a) {
  json j = json::object();
  for (const auto& [metric, value] : a.metrics) j[metric] = value;
  if (!a.late_ns.empty()) j["late_ns"] = a.late_ns;
  return j.dump();
}

answer parse_answer(const std::string& line) {
  answer a;
  const json j = checked(line);
  for (const auto& [key, value] : j.items()) {
    if (value.is_number()) a.metrics[key] = value.get<double>();
    if (key == "late_ns" && value.is_array()) a.late_ns = value.get<std::vector<std::int64_t>>();
  }
  return a;
}

std::string parse_version(const std::string& line) {
  return checked(line).value("version", "unknown");
}

void serve(const linked_peer& peer, std::istream& in, std::ostream& out) {
  for (std::string line; std::getline(in, line);) out << answer_to(peer, line) << std::endl;
}

}  // namespace verge::bench
