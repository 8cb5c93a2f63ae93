// SPDX-License-Identifier: Apache-2.0

#include "inherited.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace verge::server {

namespace {

constexpr int first_number = 3;
constexpr int most = 64;

int number_in(const char* variable) {
  const char* const text = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe)
  if (text == nullptr) return -1;
  const std::string_view all(text);
  int n = -1;
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), n);
  return error == std::errc() && end == all.data() + all.size() ? n : -1;
}

}  // namespace

std::vector<int> inherited_sockets() {
  std::vector<int> all;
  const int count = number_in("LISTEN_FDS");
  const bool mine = number_in("LISTEN_PID") == ::getpid();
  // NOLINTBEGIN(concurrency-mt-unsafe): called before any thread is started
  ::unsetenv("LISTEN_PID");
  ::unsetenv("LISTEN_FDS");
  ::unsetenv("LISTEN_FDNAMES");
  // NOLINTEND(concurrency-mt-unsafe)
  if (!mine || count <= 0 || count > most) return all;
  for (int n = first_number; n < first_number + count; ++n) {
    ::fcntl(n, F_SETFD, FD_CLOEXEC);
    all.push_back(n);
  }
  return all;
}

}  // namespace verge::server
