// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "wire.h"

/// Debian's beanstalkd, which ours is held to.
namespace verge::server::test {

/// beanstalkd on a port of its own, ended by its number.
class oracle {
 public:
  explicit oracle(std::vector<std::string> more = {}) : more_(std::move(more)) { start(); }
  oracle(const oracle&) = delete;
  oracle& operator=(const oracle&) = delete;
  ~oracle() { stop(SIGKILL); }

  std::uint16_t port() const { return port_; }
  /// It takes no more puts.
  void drain() const { ::kill(pid_, SIGUSR1); }
  /// In order, on another port.
  void restart() {
    stop(SIGTERM);
    start();
  }
  static const char* path() { return "/usr/bin/beanstalkd"; }
  static bool exists() { return ::access(path(), X_OK) == 0; }

 private:
  void start() {
    static int attempts = 0;
    for (int attempt = 0; attempt < 20; ++attempt) {
      port_ = static_cast<std::uint16_t>(20'000 + (::getpid() * 7 + ++attempts * 131) % 12'000);
      std::vector<std::string> words{"beanstalkd", "-l", "127.0.0.1", "-p", std::to_string(port_)};
      words.insert(words.end(), more_.begin(), more_.end());
      std::vector<char*> arguments;
      for (std::string& w : words) arguments.push_back(w.data());
      arguments.push_back(nullptr);
      pid_ = ::fork();
      if (pid_ == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::close(1);
        ::close(2);
        ::execv(path(), arguments.data());
        ::_exit(127);
      }
      if (serves()) return;
    }
    throw std::runtime_error("beanstalkd does not start");
  }
  /// False if it has ended: the port was taken.
  bool serves() {
    for (int i = 0; i < 5000; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
        pid_ = -1;
        return false;
      }
      try {
        const wire w(port_);
        return true;
      } catch (const std::system_error&) {
      }
    }
    return false;
  }
  void stop(int signal) {
    if (pid_ < 0) return;
    ::kill(pid_, signal);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  std::vector<std::string> more_;
  pid_t pid_{-1};
  std::uint16_t port_{0};
};

}  // namespace verge::server::test
