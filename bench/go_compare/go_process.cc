// SPDX-License-Identifier: Apache-2.0

#include "go_process.h"

#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <vector>

#include "../suite/programs.h"

namespace verge::bench {
namespace {

[[noreturn]] void fail(const std::string& text) { throw std::runtime_error(text); }

/// Where the value of "key": starts in an answer, which is one line of flat JSON without blanks.
std::optional<std::string> value_of(const std::string& answer, const std::string& key) {
  const std::string quoted = "\"" + key + "\":";
  const auto at = answer.find(quoted);
  if (at == std::string::npos) return std::nullopt;
  return answer.substr(at + quoted.size());
}

std::string string_of(const std::string& value) { return value.substr(1, value.find('"', 1) - 1); }

std::vector<double> numbers_of(const std::string& value) {
  std::vector<double> numbers;
  const char* at = value.c_str();
  while (*at == '[' || *at == ',') {
    char* end = nullptr;
    numbers.push_back(std::strtod(at + 1, &end));
    at = end;
  }
  return numbers;
}

std::string request_for(const std::string& workload, const parameters& p) {
  return workload + " processors=" + std::to_string(p.processors) +
         " background=" + std::to_string(p.background) +
         " milliseconds=" + std::to_string(p.duration.count()) +
         " samples=" + std::to_string(p.samples) + " sleep_us=" + std::to_string(p.sleep.count()) +
         " tickers=" + std::to_string(p.tickers) + " connections=" + std::to_string(p.connections);
}

}  // namespace

go_process::go_process(const std::filesystem::path& source, const std::filesystem::path& binary)
    : process_(build_go_program(source, binary)) {
  version_ = string_of(value_of(ask("Version"), "version").value_or("\"\""));
}

std::string go_process::ask(const std::string& request) {
  std::string answer = process_.ask(request);
  if (const auto error = value_of(answer, "error")) {
    fail("Go's program was asked for: " + request + "; it says: " + string_of(*error));
  }
  return answer;
}

figures go_process::run(const std::string& workload, const parameters& p) {
  const std::string answer = ask(request_for(workload, p));
  figures f;
  if (const auto v = value_of(answer, "ns_per_operation")) f.ns_per_operation = std::stod(*v);
  if (const auto v = value_of(answer, "late_ns")) f.late_ns = numbers_of(*v);
  return f;
}

}  // namespace verge::bench
