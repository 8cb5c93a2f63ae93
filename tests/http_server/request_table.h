// SPDX-License-Identifier: Apache-2.0
// The table of requests.txt.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace verge::test {

struct table_row {
  std::string section;
  std::string ours;
  std::string go;
  std::string nginx;
  std::string what;
  std::string bytes;
};

inline std::string unescaped(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      bytes += text[i];
      continue;
    }
    switch (text[++i]) {
      case 'r':
        bytes += '\r';
        break;
      case 'n':
        bytes += '\n';
        break;
      case 't':
        bytes += '\t';
        break;
      case '0':
        bytes += '\0';
        break;
      case 'x':
        bytes += static_cast<char>(
            std::strtoul(std::string(text.substr(i + 1, 2)).c_str(), nullptr, 16));
        i += 2;
        break;
      default:
        ADD_FAILURE() << "no such escape: " << text;
    }
  }
  return bytes;
}

/// All rows. A section's title is the comment on the line before its first one.
inline std::vector<table_row> request_table() {
  std::ifstream file(VERGE_HTTP_REQUESTS);
  std::vector<table_row> rows;
  std::string section;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("# ")) section = line.substr(2);
    if (line.empty() || line.starts_with('#')) continue;
    std::vector<std::string> columns;
    for (int i = 0; i < 4; ++i) {
      const auto bar = line.find(" | ");
      columns.push_back(line.substr(0, bar));
      line.erase(0, bar + 3);
    }
    rows.push_back({section, columns[0], columns[1], columns[2], columns[3], unescaped(line)});
  }
  EXPECT_GT(rows.size(), 150U) << "read from " << VERGE_HTTP_REQUESTS;
  return rows;
}

}  // namespace verge::test
