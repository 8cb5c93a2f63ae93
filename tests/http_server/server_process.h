// SPDX-License-Identifier: Apache-2.0
// The example server as a separate process, and clients for it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
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

namespace verge::test {

struct process_options {
  std::string program;
  std::vector<std::string> arguments{};
  std::vector<std::pair<std::string, std::string>> environment{};
  int exit_status{0};         ///< see end()
  rlim_t descriptors{0};      ///< how many it may have, if not 0
  std::string errors_into{};  ///< a file
};

/// Runs a server that prints where it listens. The destructor asks it to end, and checks that it
/// does.
class server_process {
 public:
  explicit server_process(process_options o) : exit_status_(o.exit_status) {
    std::array<int, 2> pipe_ends{};
    if (::pipe2(pipe_ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    std::vector<char*> words{o.program.data()};
    for (std::string& a : o.arguments) words.push_back(a.data());
    words.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      for (const auto& [name, value] : o.environment) ::setenv(name.c_str(), value.c_str(), 1);
      if (o.descriptors != 0) {
        const rlimit limit{o.descriptors, o.descriptors};
        ::setrlimit(RLIMIT_NOFILE, &limit);
      }
      ::dup2(pipe_ends[1], STDOUT_FILENO);
      if (!o.errors_into.empty())
        ::dup2(::open(o.errors_into.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600), STDERR_FILENO);
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
    EXPECT_EQ(end(), exit_status_) << "the server did not end in good order";
    std::fclose(out_);
  }
  server_process(const server_process&) = delete;
  server_process& operator=(const server_process&) = delete;

  std::uint16_t port() const { return port_; }
  std::string url(std::string_view path = "/") const {
    return "http://127.0.0.1:" + std::to_string(port_) + std::string(path);
  }

  void signal(int which) const { ::kill(pid_, which); }
  /// Asks it to end, waits for it, and returns its exit status.
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
  /// Its resident memory in kilobytes.
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

  const int exit_status_;
  pid_t pid_{-1};
  int status_{0};
  std::FILE* out_{nullptr};
  std::uint16_t port_{0};
};

/// The HTTP server, at a port that the system chooses.
class http_server_process : public server_process {
 public:
  explicit http_server_process(std::vector<std::string> arguments = {})
      : server_process(
            {.program = VERGE_HTTP_SERVER, .arguments = at_any_port(std::move(arguments))}) {}

 private:
  static std::vector<std::string> at_any_port(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--port", "0"});
    return arguments;
  }
};

}  // namespace verge::test
