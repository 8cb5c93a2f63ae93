// SPDX-License-Identifier: Apache-2.0

#include <verge/fd.h>
#include <verge/verge.h>

#include <unistd.h>

#include <array>

namespace reference_fd {

using namespace std::chrono_literals;

verge::task<> example() {
  auto [in, error] = verge::fd::adopt(::dup(STDIN_FILENO));
  in.set_read_deadline(verge::clock::now() + 30s);
  std::array<char, 256> line;
  auto [n, why] = co_await in.read_some(line);  // or .wait() on a plain thread
}

}  // namespace reference_fd
