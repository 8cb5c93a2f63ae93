// SPDX-License-Identifier: Apache-2.0

#include "words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "systems.h"
#include "workloads.h"

namespace verge::bench {
namespace {

using names = std::vector<std::string>;

/// The known ones among which the words choose, in the order of the known.
names chosen(const std::string& kind, const names& words, const names& known) {
  names found;
  for (const std::string& word : words) {
    if (word == "all") return known;
    if (word == "none") continue;
    if (std::find(known.begin(), known.end(), word) == known.end()) {
      throw std::invalid_argument(
          fmt::format("there is no {} '{}'; there are: {}, and all and none", kind, word,
                      fmt::join(known, ", ")));
    }
  }
  for (const std::string& name : known) {
    if (std::find(words.begin(), words.end(), name) != words.end()) found.push_back(name);
  }
  return found;
}

constexpr const char* prefix = "verge/";

names systems_that_are(bool verge) {
  names found;
  for (const system_info& s : all_systems()) {
    if (s.is_verge == verge) found.push_back(verge ? s.name.substr(6) : s.name);
  }
  return found;
}

std::size_t number(const std::string& word, const char* what, std::size_t least, std::size_t most) {
  std::size_t n = 0;
  const char* const end = word.data() + word.size();
  const auto [stopped, code] = std::from_chars(word.data(), end, n);
  const std::string unit(stopped, end);
  const std::size_t factor = unit.empty()                 ? 1
                             : unit == "k" || unit == "K" ? 1'000
                             : unit == "M" || unit == "m" ? 1'000'000
                                                          : 0;
  if (code != std::errc{} || factor == 0 || n > most / factor || n * factor < least) {
    throw std::invalid_argument(fmt::format(
        "{} wants numbers from {} to {}, such as 1k or 2M, and not '{}'", what, least, most, word));
  }
  return n * factor;
}

}  // namespace

names engines_named(const names& words) {
  names bare = words;
  for (std::string& word : bare) {
    if (word.starts_with(prefix)) word.erase(0, std::string_view(prefix).size());
  }
  names found = chosen("engine", bare, systems_that_are(true));
  for (std::string& name : found) name.insert(0, prefix);
  return found;
}

names peers_named(const names& words) { return chosen("peer", words, systems_that_are(false)); }

names workloads_named(const names& words) {
  names known;
  for (const workload_info& w : all_workloads()) known.push_back(w.name);
  return chosen("workload", words, known);
}

std::vector<std::size_t> sizes_in(const names& words) {
  std::vector<std::size_t> sizes;
  for (const std::string& word : words) sizes.push_back(number(word, "--timers", 1, 100'000'000));
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

std::vector<unsigned> threads_in(const names& words) {
  std::vector<unsigned> threads;
  for (const std::string& word : words) {
    threads.push_back(static_cast<unsigned>(number(word, "--threads", 1, 64)));
  }
  return threads;
}

}  // namespace verge::bench
