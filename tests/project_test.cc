// SPDX-License-Identifier: Apache-2.0

// Rules for the source tree that a compiler does not check.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <verge/version.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;
using lines = std::vector<std::string>;
using testing::Contains;
using testing::Not;
using testing::StartsWith;

const fs::path root = VERGE_SOURCE_DIR;

lines read_lines(const fs::path& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in) << "cannot read " << path;
  lines read;
  for (std::string line; std::getline(in, line);) read.push_back(line);
  return read;
}

std::vector<fs::path> sources_in(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (const auto kind = entry.path().extension(); kind == ".h" || kind == ".cc")
      found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<fs::path> public_headers() {
  auto found = sources_in(root / "include/verge");
  EXPECT_FALSE(found.empty());
  return found;
}

// UTF-8 continues a character with bytes of the form 10xxxxxx.
std::ptrdiff_t columns(const std::string& line) {
  return std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

// Except for the version, which the preprocessor needs.
TEST(public_headers, define_no_macro) {
  for (const auto& header : public_headers()) {
    for (const auto& line : read_lines(header)) {
      if (header.filename() == "version.h" && line.starts_with("#define VERGE_VERSION")) continue;
      EXPECT_FALSE(line.starts_with("#define")) << header;
    }
  }
}

/// The headers that a program includes by name: they need another library.
constexpr std::array<std::string_view, 7> opt_in{"asio.h",  "boost_asio.h", "execution.h", "glib.h",
                                                 "libev.h", "libevent.h",   "uv.h"};

TEST(public_headers, are_all_in_verge_h_unless_they_need_another_library) {
  const lines all = read_lines(root / "include/verge/verge.h");
  for (const auto& header : public_headers()) {
    const std::string name = header.filename().string();
    if (header.parent_path() != root / "include/verge" || name == "verge.h") continue;
    if (std::find(opt_in.begin(), opt_in.end(), name) != opt_in.end()) {
      EXPECT_THAT(all, Not(Contains("#include <verge/" + name + ">")));
      continue;
    }
    EXPECT_THAT(all, Contains("#include <verge/" + header.filename().string() + ">"));
  }
}

// clang-format lays out the code but not the comments.
TEST(sources, keep_to_a_hundred_columns) {
  for (const char* folder : {"bench", "bindings", "clients", "examples", "http1", "include",
                             "server", "src", "tests", "tools"})
    for (const auto& file : sources_in(root / folder)) {
      int number = 0;
      for (const auto& line : read_lines(file)) {
        ++number;
        EXPECT_LE(columns(line), 100) << file.string() << ':' << number;
      }
    }
}

// Everything that the library has to say goes through one handler (verge/log.h).
TEST(sources, of_the_library_print_nothing_but_through_the_log) {
  const std::regex prints(R"(.*(\bstderr\b|\bstdout\b|std::c(err|out|log)\b|STD(ERR|OUT)_FILENO)"
                          R"(|\bperror\(|\bf?puts\(|\bv?f?printf\(|\bsyslog\().*)");
  for (const char* folder : {"src", "include"}) {
    for (const auto& file : sources_in(root / folder)) {
      if (file == root / "src/base/log.cc") continue;
      int number = 0;
      for (std::string line : read_lines(file)) {
        ++number;
        line.resize(std::min(line.find("//"), line.size()));
        EXPECT_FALSE(std::regex_match(line, prints))
            << file.string() << ':' << number << ": " << line;
      }
    }
  }
}

// What they declare is exported, and what they include keeps its visibility.
TEST(public_headers, make_what_they_declare_visible_and_nothing_else) {
  for (const auto& header : public_headers()) {
    SCOPED_TRACE(header);
    lines marks;
    for (const auto& line : read_lines(header)) {
      if (line.ends_with(".inc>")) continue;  // a part of this header
      if (line.starts_with("#include") && (marks.empty() || marks.back() != line.substr(0, 8)))
        marks.push_back("#include");
      if (line.starts_with("#pragma GCC visibility")) marks.push_back(line);
      if (line.starts_with("namespace") && (marks.empty() || marks.back() != "namespace"))
        marks.push_back("namespace");
    }
    if (marks == lines{"#include"}) continue;  // declares nothing
    if (!marks.empty() && marks.front() == "#include") marks.erase(marks.begin());
    EXPECT_EQ(marks, (lines{"#pragma GCC visibility push(default)", "namespace",
                            "#pragma GCC visibility pop"}))
        << "after its last #include a public header says push(default), at its end pop";
  }
}

/// The rows of a table in text: cells without spaces and backticks around and in them. A row whose
/// first cell is empty continues the one before.
std::map<std::string, std::string> rows_of(const lines& text, const std::string& heading) {
  std::map<std::string, std::string> rows;
  std::string last;
  bool inside = false;
  for (const auto& line : text) {
    const auto bar = line.find('|');
    if (bar == std::string::npos) inside = false;
    if (bar == std::string::npos || line.find("---|") != std::string::npos) continue;
    std::vector<std::string> cells;
    std::istringstream in(line.substr(bar + 1));
    for (std::string cell; std::getline(in, cell, '|');) {
      std::erase(cell, '`');
      const auto first = cell.find_first_not_of(' ');
      const auto end = cell.find_last_not_of(' ');
      cells.push_back(first == std::string::npos ? "" : cell.substr(first, end - first + 1));
    }
    if (cells.size() < 2) continue;
    if (cells[1] == heading) inside = true;
    if (!inside || cells[1] == heading) continue;
    if (!cells[0].empty()) last = cells[0];
    std::string& row = rows[last];
    row += (row.empty() || cells[1].empty() ? "" : " ") + cells[1];
  }
  return rows;
}

TEST(documents, say_of_destruction_what_the_header_says) {
  const auto told = rows_of(read_lines(root / "docs/guarantees.md"), "destroying it");
  const auto said = rows_of(read_lines(root / "include/verge/verge.h"), "destroying it");
  EXPECT_GT(said.size(), 10u);
  EXPECT_EQ(told, said);
}

/// Whether a line begins a block of code in a language that is built or run here.
bool begins_code(const std::string& line) {
  for (const char* fence : {"```cpp", "```c", "```python", "```rust"})
    if (line == fence) return true;
  return false;
}

// A block of code in these documents follows a line <!-- examples/NAME.cc --> and is quoted from
// that file, which is built and run.
/// README.md and every page of docs/.
std::vector<fs::path> documents() {
  std::vector<fs::path> all{root / "README.md"};
  for (const auto& file : fs::recursive_directory_iterator(root / "docs"))
    if (file.path().extension() == ".md") all.push_back(file.path());
  return all;
}

TEST(documents, quote_only_code_that_is_built) {
  int blocks = 0;
  for (const fs::path& document : documents()) {
    SCOPED_TRACE(document);
    const lines text = read_lines(document);
    for (auto fence = text.begin(); fence != text.end(); ++fence) {
      if (!begins_code(*fence)) continue;
      ++blocks;
      ASSERT_NE(fence, text.begin());
      const std::string mark = *std::prev(fence);
      ASSERT_THAT(mark, StartsWith("<!-- examples/"));
      const fs::path example = root / mark.substr(5, mark.rfind(" -->") - 5);
      const lines source = read_lines(example);
      const auto end = std::find(fence, text.end(), "```");
      const auto at = std::search(source.begin(), source.end(), std::next(fence), end);
      EXPECT_NE(at, source.end()) << "the block after " << mark << " is not, line for line, in "
                                  << example;
    }
  }
  EXPECT_GT(blocks, 10) << "they quote no examples";
}

TEST(documents, include_only_what_is_there) {
  const std::string mark = "<!-- include ";
  int includes = 0;
  for (const fs::path& document : documents()) {
    for (const std::string& line : read_lines(document)) {
      if (!line.starts_with(mark)) continue;
      ++includes;
      const std::string what = line.substr(mark.size(), line.rfind(" -->") - mark.size());
      const auto hash = what.find('#');
      const lines source = read_lines(root / what.substr(0, hash));
      EXPECT_FALSE(source.empty()) << document << " includes " << what;
      if (hash == std::string::npos) continue;
      const std::string part = what.substr(hash + 1);
      const auto has = [&](const std::string& text) {
        return std::any_of(source.begin(), source.end(),
                           [&](const std::string& l) { return l.ends_with(text); });
      };
      EXPECT_TRUE(has("// [" + part + "]") && has("// [/" + part + "]"))
          << document << " includes " << what << ", which has no such part";
    }
  }
  EXPECT_GT(includes, 25);
}

/// What the build compiles, or a test of it runs: its compilation database, and its lists of tests.
std::string what_is_built() {
  std::string all;
  for (const char* list : {"compile_commands.json", "examples/CTestTestfile.cmake",
                           "bindings/tests/CTestTestfile.cmake"})
    for (const auto& line : read_lines(fs::path(VERGE_BINARY_DIR) / list)) all += line + '\n';
  return all;
}

/// Whether the build omits this example, and has said so, as a package is missing: the adapter
/// NAME's is with_NAME.cc or NAME_before.cc; go_before.go needs go.
bool is_omitted(const std::string& example) {
  static const std::regex adapter(R"(.*/(?:with_)?(\w+?)(?:_before|_simulation)?\.(?:cc|go))");
  std::smatch match;
  if (!std::regex_match(example, match, adapter)) return false;
  const std::string name = match[1];
  const std::string missing = std::string(" ") + VERGE_NOT_BUILT + " ";
  return missing.find(" " + name + " ") != std::string::npos;
}

TEST(documents, show_only_examples_that_this_build_has) {
  const std::regex mark(R"(<!-- (?:include )?(examples/[^ #]+\.(?:cc|c|go|py))[ #].*)");
  const std::string built = what_is_built();
  int shown = 0;
  for (const fs::path& document : documents()) {
    for (const std::string& line : read_lines(document)) {
      std::smatch match;
      if (!std::regex_match(line, match, mark) || is_omitted(match[1])) continue;
      ++shown;
      EXPECT_NE(built.find((root / match[1].str()).string()), std::string::npos)
          << document << " shows " << match[1] << ", which is not compiled and not run";
    }
  }
  EXPECT_GT(shown, 40);
}

// What the site shows is enough for a client with deadline, retries and hedging in a few lines: the
// one of the cookbook, and a whole program that was written with nothing but the site.
TEST(examples, have_an_rpc_client_in_under_sixty_lines) {
  EXPECT_LT(read_lines(root / "examples/trial/rpc_client.cc").size(), 60U);
  const lines source = read_lines(root / "examples/cookbook/rpc_client.cc");
  const auto begin = std::find(source.begin(), source.end(), "// [client]");
  const auto end = std::find(source.begin(), source.end(), "// [/client]");
  ASSERT_NE(end, source.end());
  EXPECT_GT(end - begin, 10);
  EXPECT_LT(end - begin, 60);
}

/// When this version was released, by the changelog; empty if it does not say.
std::string release_date() {
  const std::regex heading(std::string("## ") + verge::version() + R"( \((\d{4}-\d\d-\d\d)\))");
  std::smatch match;
  for (const auto& line : read_lines(root / "CHANGELOG.md"))
    if (std::regex_match(line, match, heading)) return match[1];
  return {};
}

// Each package manager wants the version in a file of its own.
TEST(packages, have_the_version_of_the_library) {
  const std::string version = verge::version();
  const std::map<std::string, std::string> says{
      {"debian/changelog", "verge (" + version + "-"},
      {"meson.build", "  version: '" + version + "'"},
      {"packaging/conan/conanfile.py", "    version = \"" + version + "\""},
      {"packaging/meson/verge.wrap", "revision = v" + version},
      {"packaging/vcpkg/ports/verge/vcpkg.json", "  \"version\": \"" + version + "\""},
      {"bindings/rust/verge-sys/Cargo.toml", "version = \"" + version + "\""},
      {"clients/typescript/package.json", "  \"version\": \"" + version + "\""},
      {"tools/verge/verge.1", ".TH VERGE 1 \"" + release_date() + "\" \"verge " + version + "\""},
  };
  for (const auto& [file, line] : says) {
    bool found = false;
    for (const auto& l : read_lines(root / file)) found = found || l.starts_with(line);
    EXPECT_TRUE(found) << file << " has no line that begins with: " << line;
  }
}

TEST(changelog, names_the_version_and_the_day_of_its_release) {
  EXPECT_NE(release_date(), "") << "CHANGELOG.md has no heading '## " << verge::version()
                                << " (YYYY-MM-DD)'";
}

// The soname has the minor version before 1.0, and the snapshot of the binary interface is its.
TEST(abi, the_snapshot_is_that_of_this_version) {
  const std::string soname = "soname='libverge.so." + std::to_string(VERGE_VERSION_MAJOR) + "." +
                             std::to_string(VERGE_VERSION_MINOR) + "'";
  bool found = false;
  for (const auto& line : read_lines(root / "abi/libverge.abi"))
    found = found || line.find(soname) != std::string::npos;
  EXPECT_TRUE(found) << "abi/libverge.abi has no " << soname;
}

}  // namespace
