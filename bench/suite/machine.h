// What the figures were taken on.
#pragma once

#include <map>
#include <string>

namespace verge::bench {

/// "cpu", "cores", "memory", "kernel", "system", "compiler", "flags", "verge", "date", "clock_ns".
std::map<std::string, std::string> describe_machine();

}  // namespace verge::bench
