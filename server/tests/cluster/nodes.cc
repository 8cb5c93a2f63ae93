// SPDX-License-Identifier: Apache-2.0

#include "nodes.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <utility>

namespace verge::cluster_test {

node::node(std::string database, int lease, std::string fault, bool synced)
    : database_(std::move(database)), lease_(lease), fault_(std::move(fault)), synced_(synced) {}

bool node::start() {
  std::array<int, 2> out{};
  if (::pipe(out.data()) != 0) throw std::runtime_error("pipe");
  const std::string lease = std::to_string(lease_);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::dup2(out[1], STDOUT_FILENO);
    ::close(out[0]);
    ::close(out[1]);
    if (!fault_.empty()) ::setenv("VERGE_FAULT", fault_.c_str(), 1);
    ::execl(VERGE_CLUSTER_NODE, "cluster_node", database_.c_str(), lease.c_str(),
            synced_ ? "synced" : "written", nullptr);
    ::_exit(127);
  }
  ::close(out[1]);
  std::string line;
  char c = 0;
  while (::read(out[0], &c, 1) == 1 && c != '\n') line.push_back(c);
  ::close(out[0]);
  if (line.empty()) {
    kill();
    return false;
  }
  port_ = static_cast<std::uint16_t>(std::stoi(line));
  return true;
}

void node::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void node::send(int signal) const {
  if (pid_ > 0) ::kill(pid_, signal);
}

void node::stop(bool on) const { send(on ? SIGSTOP : SIGCONT); }

void node::end() {
  if (pid_ <= 0) return;
  send(SIGCONT);
  send(SIGTERM);
  // One with a fault may have taken a shard that it does not know of when it ends.
  for (int i = 0; !fault_.empty() && i < 500; ++i) {
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (!fault_.empty()) return kill();
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

namespace {

class socket_to {
 public:
  explicit socket_to(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
  }
  socket_to(const socket_to&) = delete;
  socket_to& operator=(const socket_to&) = delete;
  ~socket_to() { ::close(fd_); }

  bool send(const std::string& bytes) const {
    return connected_ && ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                             static_cast<ssize_t>(bytes.size());
  }
  /// Appends what comes. False at the end, or if nothing comes in time.
  bool more(std::string& in, std::chrono::steady_clock::time_point until) const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    pollfd p{fd_, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&p, 1, static_cast<int>(left.count())) <= 0) return false;
    std::array<char, 65536> bytes{};
    const ssize_t n = ::recv(fd_, bytes.data(), bytes.size(), 0);
    if (n <= 0) return false;
    in.append(bytes.data(), static_cast<std::size_t>(n));
    return true;
  }

 private:
  int fd_;
  bool connected_{false};
};

}  // namespace

std::optional<http_result> ask(std::uint16_t port, const std::string& method,
                               const std::string& target, const std::string& body,
                               std::chrono::seconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  const socket_to to(port);
  std::string request = method + " " + target + " HTTP/1.1\r\nHost: localhost\r\n";
  if (!body.empty()) request += "Content-Type: application/json\r\n";
  request +=
      "Content-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + body;
  if (!to.send(request)) return std::nullopt;
  std::string in;
  std::size_t head = std::string::npos;
  while ((head = in.find("\r\n\r\n")) == std::string::npos) {
    if (!to.more(in, until)) return std::nullopt;
  }
  http_result r;
  r.status = std::stoi(in.substr(9, 3));
  std::string lower = in.substr(0, head);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const std::size_t at = lower.find("content-length: ");
  const std::size_t size = at == std::string::npos ? 0 : std::stoul(lower.substr(at + 16));
  while (in.size() < head + 4 + size) {
    if (!to.more(in, until)) return std::nullopt;
  }
  r.body = in.substr(head + 4, size);
  return r;
}

}  // namespace verge::cluster_test
