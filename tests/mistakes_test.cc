// SPDX-License-Identifier: Apache-2.0

// Mistakes in the use of the library that a compiler finds, and its messages. The files in
// mistakes/ are compiled; in each, a line with a comment "warning: TEXT" or "error: TEXT" must give
// exactly one such message, with that text in it, and no other line any.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <support/output_of.h>

namespace {

/// Texts by the line of the user's file that they are about.
using messages = std::multimap<int, std::string>;

const std::filesystem::path folder = VERGE_SOURCE_DIR "/tests/mistakes";

messages expected(const std::filesystem::path& file, const std::string& kind) {
  std::ifstream in(file);
  EXPECT_TRUE(in) << "cannot read " << file;
  messages found;
  int number = 0;
  const std::string mark = "// " + kind + ": ";
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (const auto at = line.find(mark); at != std::string::npos)
      found.emplace(number, line.substr(at + mark.size()));
  }
  return found;
}

std::vector<std::string> compile(const std::filesystem::path& file) {
  const std::string command = std::string("LC_ALL=C " VERGE_CXX
                                          " -std=c++20 -Wall -fsyntax-only -fmessage-length=0"
                                          " -I " VERGE_SOURCE_DIR "/include '") +
                              file.string() + "'";
  std::vector<std::string> lines;
  std::istringstream in(verge::test::output_of(command));
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// The messages of that kind. One inside a header belongs to the user's line that "required" it.
messages given(const std::vector<std::string>& said, const std::string& file,
               const std::string& kind) {
  const std::regex place(".*" + file + R"(:(\d+):\d+: (.*))");
  const std::regex message(R"(.*:\d+:\d+: )" + kind + ": (.*)");
  messages found;
  int user_line = 0;
  for (const std::string& line : said) {
    std::smatch part;
    if (std::regex_match(line, part, place)) user_line = std::stoi(part[1]);
    if (std::regex_match(line, part, message)) found.emplace(user_line, part[1]);
  }
  return found;
}

void expect_just_these(const std::string& file, const std::string& kind) {
  const auto said = compile(folder / file);
  const messages wanted = expected(folder / file, kind);
  const messages got = given(said, file, kind);
  EXPECT_FALSE(wanted.empty());
  for (const auto& [line, text] : wanted) {
    EXPECT_EQ(got.count(line), 1u) << kind << "s about " << file << ':' << line;
    const auto at = got.find(line);
    if (at == got.end()) continue;
    EXPECT_NE(at->second.find(text), std::string::npos)
        << file << ':' << line << ": no '" << text << "' in: " << at->second;
  }
  for (const auto& [line, text] : got)
    EXPECT_EQ(wanted.count(line), 1u) << file << ':' << line << " gives: " << text;
  // Including the lines that give the location and quote the source.
  EXPECT_LE(said.size(), wanted.size() * 14) << "lines in all, for that many messages";
}

TEST(mistakes, a_result_that_is_dropped_gives_a_warning_that_says_what_to_do) {
  expect_just_these("dropped.cc", "warning");
}

TEST(mistakes, a_function_that_does_not_fit_gives_one_error_that_says_what_to_do) {
  expect_just_these("signatures.cc", "error");
}

}  // namespace
