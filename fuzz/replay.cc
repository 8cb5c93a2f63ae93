// SPDX-License-Identifier: Apache-2.0

// Gives a target what fuzzing has kept, file by file: fuzz_replay NAME FOLDER..

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

#include "targets.h"

namespace {

std::vector<std::uint8_t> read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

int main(int argc, char** argv) {
  const auto* const target =
      std::find_if(std::begin(verge::fuzz::targets), std::end(verge::fuzz::targets),
                   [&](const auto& t) { return argc > 2 && t.name == std::string_view(argv[1]); });
  if (target == std::end(verge::fuzz::targets)) {
    std::fprintf(stderr, "usage: fuzz_replay NAME FOLDER..\n");
    return 2;
  }
  int files = 0;
  for (int i = 2; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::printf("%s\n", entry.path().filename().c_str());
      std::fflush(stdout);  // the last line names the file if the target aborts
      const auto bytes = read(entry.path());
      target->run(bytes.data(), bytes.size());
      ++files;
    }
  }
  std::printf("%d files\n", files);
  return files == 0 ? 1 : 0;
}
