// SPDX-License-Identifier: Apache-2.0

// Starts a program as systemd does with socket activation: with two sockets that listen, as numbers
// 3 and 4. Prints their ports first.
//
//   socket_launcher PROGRAM [ARGUMENTS]

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace {

int listening(int number) {
  const int made = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  if (made < 0 || ::bind(made, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 ||
      ::listen(made, 100) != 0 ||
      ::getsockname(made, reinterpret_cast<sockaddr*>(&at), &size) != 0) {
    return -1;
  }
  if (made != number) {
    if (::dup2(made, number) != number) return -1;
    ::close(made);
  }
  return ntohs(at.sin_port);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const int first = listening(3);
  const int second = listening(4);
  if (first < 0 || second < 0) return 1;
  std::printf("%d %d\n", first, second);
  std::fflush(stdout);
  ::setenv("LISTEN_FDS", "2", 1);
  ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
  ::execv(argv[1], argv + 1);
  return 127;
}
