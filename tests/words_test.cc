// SPDX-License-Identifier: Apache-2.0

// The words of comments, documents, error texts and test names. They are written in the plain
// technical English of the C++ standard; this test finds words that are not part of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <istream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

const fs::path root = VERGE_SOURCE_DIR;

constexpr std::array folders{".ci",   "bench",   "bindings", "clients", "cmake", "docs", "examples",
                             "http1", "include", "server",   "src",     "tests", "tools"};

/// Not checked: this file, which lists the words.
constexpr std::array<std::string_view, 1> exempt{"tests/words_test.cc"};

/// A word, or two in a row, to what to write instead.
const std::map<std::string, std::string, std::less<>>& unwanted() {
  static const auto all = [] {
    std::map<std::string, std::string, std::less<>> words{
        {"anywhen", "at any time"},
        {"be had", "be created, allocated, obtained"},
        {"for ever", "forever"},
        {"lest", "so that ... not"},
    };
    for (const char* w : {"who", "whom", "whoever", "whomever", "whosever"})
      words[w] = "the thread (task, caller) that";
    for (const char* w : {"he", "him", "his", "himself"}) words[w] = "it, its";
    for (const char* w : {"nobody", "somebody", "anybody", "everybody"})
      words[w] = "no thread, a thread, any thread";
    for (const char* w : {"be", "is", "are", "was", "were", "been", "has", "have", "had"})
      words[std::string(w) + " gone"] = "destroyed, freed, ended";
    return words;
  }();
  return all;
}

enum class language { none, c, script, markdown };

language language_of(const fs::path& file) {
  const std::string kind = file.extension().string();
  const std::string name = file.filename().string();
  if (kind == ".md" || kind == ".html") return language::markdown;
  for (const char* c : {".h", ".hpp", ".c", ".cc", ".go", ".java", ".rs", ".js", ".ts", ".inc"})
    if (kind == c) return language::c;
  const bool no_kind = kind.empty() && name[0] != '.';
  return kind == ".cmake" || kind == ".sh" || kind == ".py" || no_kind || name == "CMakeLists.txt"
             ? language::script
             : language::none;
}

/// The part of a line that people read: comments, strings, and the names of tests as words.
/// `in_block` is whether the line begins inside of a /* comment, and then whether it ends in one.
std::string prose_of(const std::string& line, language in, bool& in_block) {
  if (in == language::markdown) return line;
  if (in_block) {
    const auto end = line.find("*/");
    in_block = end == std::string::npos;
    return line.substr(0, end);
  }
  const auto first = line.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  if (in == language::c && line.compare(first, 4, "TEST") == 0) {
    std::string words = line;
    std::replace(words.begin(), words.end(), '_', ' ');
    return words;
  }
  const std::string_view comment = in == language::c ? "//" : "#";
  std::string prose;
  bool in_string = false;
  for (std::size_t i = first; i < line.size(); ++i) {
    if (line[i] == '"') {
      in_string = !in_string;
      prose += ' ';
    } else if (in_string) {
      if (line[i] == '\\') {
        ++i;  // the next character is escaped
        prose += ' ';
      } else {
        prose += line[i];
      }
    } else if (line.compare(i, comment.size(), comment) == 0) {
      return prose + line.substr(i);
    } else if (in == language::c && line.compare(i, 2, "/*") == 0) {
      const auto end = line.find("*/", i + 2);
      in_block = end == std::string::npos;
      prose += ' ' + line.substr(i, end - i);
      if (in_block) return prose;
      i = end + 1;
    }
  }
  return prose;
}

std::vector<std::string> words_of(const std::string& prose) {
  std::vector<std::string> words;
  bool inside = false;
  for (const char c : prose) {
    const auto u = static_cast<unsigned char>(c);
    const bool part = std::isalnum(u) != 0 || c == '_' || c == '\'';
    if (part && !inside) words.emplace_back();
    if (part) words.back() += static_cast<char>(std::tolower(u));
    inside = part;
  }
  return words;
}

/// The unwanted words of a text, which may be spread over two lines.
std::vector<std::string> faults_of(std::istream& text, const std::string& name, language in) {
  std::vector<std::string> faults;
  std::string before;
  bool in_block = false;
  int number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    const auto words = words_of(prose_of(line, in, in_block));
    if (words.empty()) before.clear();
    for (const auto& word : words) {
      for (const auto& found : {word, before + ' ' + word}) {
        if (const auto rule = unwanted().find(found); rule != unwanted().end()) {
          faults.push_back(name + ":" + std::to_string(number) + ": \"" + found +
                           "\"; write: " + rule->second);
        }
      }
      before = word;
    }
  }
  return faults;
}

std::vector<std::string> faults_of(const fs::path& file) {
  const std::string name = fs::relative(file, root).generic_string();
  const language in = language_of(file);
  if (in == language::none) return {};
  for (const auto start : exempt)
    if (name.starts_with(start)) return {};
  std::ifstream text(file);
  EXPECT_TRUE(text) << "cannot read " << file;
  return faults_of(text, name, in);
}

TEST(words, are_those_of_plain_technical_english) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(root))
    if (entry.is_regular_file() && entry.path().filename() != "LICENSE") files.push_back(entry);
  for (const char* folder : folders)
    for (const auto& entry : fs::recursive_directory_iterator(root / folder))
      if (entry.is_regular_file()) files.push_back(entry);
  std::sort(files.begin(), files.end());
  EXPECT_GT(files.size(), 100u);
  for (const auto& file : files) EXPECT_THAT(faults_of(file), IsEmpty());
}

std::vector<std::string> faults_in(const std::string& text, language in) {
  std::istringstream lines(text);
  return faults_of(lines, "f", in);
}

// The checks above must be able to fail.
TEST(words, that_are_unwanted_are_found_with_their_line) {
  EXPECT_THAT(faults_in("int he;\n// who\n", language::c),
              ElementsAre("f:2: \"who\"; write: the thread (task, caller) that"));
  EXPECT_THAT(faults_in("throw error(\"the timer is\"\n  \" gone\");\n", language::c),
              ElementsAre("f:2: \"is gone\"; write: destroyed, freed, ended"));
  EXPECT_THAT(faults_in("TEST(a_timer, waits_for_nobody) {\n", language::c),
              ElementsAre("f:1: \"nobody\"; write: no thread, a thread, any thread"));
  EXPECT_THAT(faults_in("It waits for\never.\n", language::markdown),
              ElementsAre("f:2: \"for ever\"; write: forever"));
  EXPECT_THAT(faults_in("/* a\n * who */ he();\nint he; /* he */ int x;\n", language::c),
              ElementsAre("f:2: \"who\"; write: the thread (task, caller) that",
                          "f:3: \"he\"; write: it, its"));
  EXPECT_THAT(faults_in("he=1  # His\n", language::script),
              ElementsAre("f:1: \"his\"; write: it, its"));
}

TEST(words, that_are_code_or_parts_of_others_are_not_found) {
  EXPECT_THAT(faults_in("wait(waiter::nobody);  // whose waiter; the whole\n", language::c),
              IsEmpty());
  EXPECT_THAT(faults_in("It is\n\ngone_by_then\n", language::markdown), IsEmpty());
}

}  // namespace
