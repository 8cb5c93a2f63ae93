// The example server as a process of its own, and clients for it.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <support/patience.h>

namespace verge::test {

/// Runs VERGE_HTTP_SERVER with these options. When it goes the server is asked to end, and must.
class server_process {
 public:
  explicit server_process(std::vector<std::string> options, rlim_t descriptors = 0) {
    options.insert(options.begin(), {VERGE_HTTP_SERVER, "--port", "0"});
    std::array<int, 2> pipe_ends{};
    if (::pipe2(pipe_ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    std::vector<char*> words;
    for (std::string& o : options) words.push_back(o.data());
    words.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      if (descriptors != 0) {
        const rlimit limit{descriptors, descriptors};
        ::setrlimit(RLIMIT_NOFILE, &limit);
      }
      ::dup2(pipe_ends[1], STDOUT_FILENO);
      ::execv(words[0], words.data());
      ::_exit(127);
    }
    ::close(pipe_ends[1]);
    out_ = ::fdopen(pipe_ends[0], "r");
    const std::string said = line();
    const auto colon = said.rfind(':');
    if (said.compare(0, 12, "listening on") != 0 || colon == std::string::npos)
      throw std::runtime_error("the server does not listen: " + said);
    port_ = static_cast<std::uint16_t>(std::stoi(said.substr(colon + 1)));
  }
  ~server_process() {
    EXPECT_EQ(end(), 0) << "the server did not end in good order";
    std::fclose(out_);
  }
  server_process(const server_process&) = delete;
  server_process& operator=(const server_process&) = delete;

  std::uint16_t port() const { return port_; }
  std::string url(std::string_view path = "/") const {
    return "http://127.0.0.1:" + std::to_string(port_) + std::string(path);
  }

  void signal(int which) const { ::kill(pid_, which); }
  /// Asks it to end, waits for that, and gives its exit status.
  int end() {
    if (pid_ > 0) {
      signal(SIGTERM);
      ::waitpid(std::exchange(pid_, -1), &status_, 0);
    }
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 1000 + WTERMSIG(status_);
  }
  bool has_ended() {
    if (pid_ > 0 && ::waitpid(pid_, &status_, WNOHANG) == pid_) pid_ = -1;
    return pid_ < 0;
  }

  std::size_t descriptors() const {
    std::size_t n = 0;
    for ([[maybe_unused]] const auto& d :
         std::filesystem::directory_iterator("/proc/" + std::to_string(pid_) + "/fd"))
      ++n;
    return n;
  }
  /// Memory that it really has, in kilobytes.
  std::size_t kilobytes() const {
    std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
    for (std::string word; status >> word;) {
      std::size_t n = 0;
      if (word == "VmRSS:" && status >> n) return n;
    }
    return 0;
  }

 private:
  std::string line() {
    std::string read;
    for (int c = 0; (c = std::fgetc(out_)) != EOF && c != '\n';) read += static_cast<char>(c);
    return read;
  }

  pid_t pid_{-1};
  int status_{0};
  std::FILE* out_{nullptr};
  std::uint16_t port_{0};
};

/// A connection that blocks.
class client {
 public:
  explicit client(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0)
      throw std::runtime_error("cannot connect");
    const timeval patient{.tv_sec = patience.count(), .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patient, sizeof patient);
  }
  client(client&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  client& operator=(client&&) = delete;
  ~client() {
    if (fd_ >= 0) ::close(fd_);
  }

  /// False if the other side has hung up.
  bool send(std::string_view text) const {
    return ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  void end_of_requests() const { ::shutdown(fd_, SHUT_WR); }
  /// What there is, waiting for it; empty at the end.
  std::string some() const {
    std::array<char, 4096> bytes;
    const ssize_t n = ::recv(fd_, bytes.data(), bytes.size(), 0);
    return n <= 0 ? "" : std::string(bytes.data(), static_cast<std::size_t>(n));
  }
  /// Until the other side closes.
  std::string rest() const {
    std::string all;
    for (std::string s = some(); !s.empty(); s = some()) all += s;
    return all;
  }
  /// So many bytes, or fewer if it ends before.
  std::string bytes(std::size_t n) const {
    std::string all;
    while (all.size() < n) {
      const std::string s = some();
      if (s.empty()) break;
      all += s;
    }
    return all;
  }

 private:
  int fd_;
};

/// What a command prints, with its errors.
inline std::string output_of(const std::string& command) {
  std::string all;
  std::FILE* p = ::popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> bytes;
  for (std::size_t n = 0; (n = std::fread(bytes.data(), 1, bytes.size(), p)) > 0;)
    all.append(bytes.data(), n);
  ::pclose(p);
  return all;
}

}  // namespace verge::test
