// SPDX-License-Identifier: Apache-2.0

// The layers of docs/architecture.md: its tables say which folder of src/, and of the task server,
// includes which, and here the include graphs are computed and held to them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <istream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

const fs::path root = VERGE_SOURCE_DIR;

/// Folders of the task server whose programs may use any other.
const std::set<std::string> not_layered{"tests", "bench", "demo"};

/// A folder to the folders beside it that it may include.
using layers = std::map<std::string, std::set<std::string>>;

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" `");
  const auto last = text.find_last_not_of(" `");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

std::vector<std::string> split(const std::string& line, char at) {
  std::vector<std::string> parts;
  std::istringstream in(line);
  for (std::string part; std::getline(in, part, at);) parts.push_back(trimmed(part));
  return parts;
}

/// The rows "| `src/NAME/` | what | a, b |" of a document, for the tree "src/".
layers read_table(std::istream& document, const std::string& tree) {
  layers table;
  for (std::string line; std::getline(document, line);) {
    const auto cells = split(line, '|');
    if (cells.size() < 4 || !cells[1].starts_with(tree)) continue;
    std::string folder = cells[1].substr(tree.size());
    if (folder.ends_with('/')) folder.pop_back();
    auto& below = table[folder];
    for (const auto& name : split(cells[3], ','))
      if (!name.empty()) below.insert(name);
  }
  return table;
}

/// The folder that a line includes from, or nothing: "queue" of `#include <queue/divisor.h>`, and
/// of `#include "../queue/divisor.h"`.
std::string included_folder(const std::string& line, const layers& table) {
  const auto begin = line.find_first_not_of(" #\t");
  if (line.find('#') > begin || begin == std::string::npos) return "";
  if (line.compare(begin, 7, "include") != 0) return "";
  const auto quote = line.find_first_of("<\"", begin);
  if (quote == std::string::npos) return "";
  std::string path = line.substr(quote + 1);
  while (path.starts_with("../")) path.erase(0, 3);
  const std::string folder = path.substr(0, std::min(path.find('/'), path.size()));
  return table.contains(folder) ? folder : "";
}

/// What is wrong with one file of a folder.
std::vector<std::string> faults_of(std::istream& source, const std::string& name,
                                   const std::string& folder, const layers& table) {
  std::vector<std::string> faults;
  int number = 0;
  for (std::string line; std::getline(source, line);) {
    ++number;
    const std::string to = included_folder(line, table);
    if (to.empty() || to == folder) continue;
    if (!table.contains(folder) || !table.at(folder).contains(to)) {
      faults.push_back(name + ":" + std::to_string(number) + ": " +
                       (folder.empty() ? "a public header" : folder) + " must not include " + to);
    }
  }
  return faults;
}

/// Folders that can reach themselves along the table.
std::vector<std::string> in_cycles(const layers& table) {
  std::vector<std::string> found;
  for (const auto& start : table) {
    std::set<std::string> seen;
    std::vector<std::string> next(start.second.begin(), start.second.end());
    while (!next.empty()) {
      const std::string at = next.back();
      next.pop_back();
      if (!seen.insert(at).second || !table.contains(at)) continue;
      next.insert(next.end(), table.at(at).begin(), table.at(at).end());
    }
    if (seen.contains(start.first)) found.push_back(start.first);
  }
  return found;
}

layers read_architecture(const std::string& tree) {
  std::ifstream document(root / "docs/architecture.md");
  return read_table(document, tree);
}

/// Checks the files of a tree; returns how many there are. Those directly in it are in no folder.
int check_tree(const std::string& tree, const layers& table, bool has_folders) {
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root / tree)) {
    const fs::path& path = entry.path();
    if (path.extension() != ".h" && path.extension() != ".cc") continue;
    const fs::path inside = path.lexically_relative(root / tree);
    const std::string folder = has_folders && inside.has_parent_path() ? *inside.begin() : "";
    if (not_layered.contains(folder)) continue;
    ++files;
    std::ifstream source(path);
    EXPECT_THAT(faults_of(source, path.string(), folder, table), IsEmpty());
  }
  return files;
}

std::vector<std::string> folders_in(const std::string& tree) {
  std::vector<std::string> there;
  for (const auto& entry : fs::directory_iterator(root / tree)) {
    const std::string name = entry.path().filename();
    if (entry.is_directory() && !not_layered.contains(name)) there.push_back(name);
  }
  return there;
}

std::vector<std::string> folders_of(const layers& table) {
  std::vector<std::string> told;
  for (const auto& row : table) told.push_back(row.first);
  return told;
}

TEST(layers, are_kept_by_every_include) {
  const layers table = read_architecture("src/");
  EXPECT_GT(check_tree("src", table, true) + check_tree("include", table, false), 100);
}

TEST(layers, of_the_task_server_are_kept_by_every_include) {
  EXPECT_GT(check_tree("server", read_architecture("server/"), true), 50);
}

TEST(layers, make_no_cycle) {
  EXPECT_THAT(in_cycles(read_architecture("src/")), IsEmpty());
  EXPECT_THAT(in_cycles(read_architecture("server/")), IsEmpty());
}

TEST(layers, of_the_table_are_the_folders_of_the_tree) {
  for (const std::string tree : {"src/", "server/"}) {
    EXPECT_THAT(folders_in(tree),
                testing::UnorderedElementsAreArray(folders_of(read_architecture(tree))));
  }
}

// The checks above must be able to fail.

TEST(layers_check, names_file_and_line_of_an_include_that_is_not_in_the_table) {
  std::istringstream document("| `src/low/` | . | |\n| `src/high/` | . | low |\n");
  const layers table = read_table(document, "src/");
  std::istringstream allowed("#include <low/a.h>\n#include <verge/time.h>\n#include <vector>\n");
  EXPECT_THAT(faults_of(allowed, "b.cc", "high", table), IsEmpty());
  std::istringstream upward("#pragma once\n#include <high/b.h>\n");
  EXPECT_THAT(faults_of(upward, "a.h", "low", table),
              ElementsAre("a.h:2: low must not include high"));
  std::istringstream beside("#include \"b.h\"\n#include \"../high/b.h\"\n");
  EXPECT_THAT(faults_of(beside, "a.h", "low", table),
              ElementsAre("a.h:2: low must not include high"));
  std::istringstream deeper(
      "#if 1\n#  include \"../../high/b.h\"\n  # include <high/c.h>\n#endif\n");
  EXPECT_THAT(faults_of(deeper, "a.h", "low", table),
              ElementsAre("a.h:2: low must not include high", "a.h:3: low must not include high"));
  std::istringstream in_public("#include <low/a.h>\n");
  EXPECT_THAT(faults_of(in_public, "time.h", "", table),
              ElementsAre("time.h:1: a public header must not include low"));
}

TEST(layers_check, finds_a_cycle) {
  EXPECT_THAT(in_cycles({{"a", {"b"}}, {"b", {"c"}}, {"c", {"a"}}, {"d", {"a"}}}),
              ElementsAre("a", "b", "c"));
}

}  // namespace
