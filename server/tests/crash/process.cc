// SPDX-License-Identifier: Apache-2.0

#include "process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <system_error>

namespace verge::crash {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

/// A file without a name: it holds whatever the child says, and never blocks it.
int unnamed_file() {
  char name[] = "/tmp/verge-crash-XXXXXX";
  const int fd = ::mkostemp(name, O_CLOEXEC);
  if (fd < 0) fail("mkostemp");
  ::unlink(name);
  return fd;
}

std::string contents(int fd) {
  std::string text;
  char piece[4096];
  off_t at = 0;
  for (ssize_t n = 0; (n = ::pread(fd, piece, sizeof piece, at)) > 0; at += n) {
    text.append(piece, static_cast<std::size_t>(n));
  }
  return text;
}

pid_t start(const std::vector<std::string>& command, const environment& more, int out, int error) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  // All of it before the fork: other threads may hold locks that the child would wait for.
  std::vector<std::string> variables;
  for (char** v = environ; *v != nullptr; ++v) variables.emplace_back(*v);
  for (const auto& [name, value] : more) {
    const std::string start = name + "=";
    std::erase_if(variables, [&](const std::string& v) { return v.starts_with(start); });
    variables.push_back(start + value);
  }
  std::vector<char*> environment_words;
  for (std::string& v : variables) environment_words.push_back(v.data());
  environment_words.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) fail("fork");
  if (pid != 0) return pid;
  // It does not outlive the test, however that ends.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(126);
  ::dup2(out, 1);
  ::dup2(error, 2);
  ::execve(words[0], words.data(), environment_words.data());
  ::_exit(127);
}

int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) fail("waitpid");
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace

scratch::scratch(on where) {
  const bool memory = where == on::memory && ::access("/dev/shm", W_OK) == 0;
  std::string name =
      (memory ? "/dev/shm" : fs::temp_directory_path().string()) + "/verge-crash-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) fail("mkdtemp");
  path_ = name;
}

scratch::~scratch() {
  std::error_code ignored;
  if (std::getenv("VERGE_CRASH_KEEP") == nullptr) fs::remove_all(path_, ignored);
}

ended run(const std::vector<std::string>& command, const environment& more) {
  ended e;
  const int out = unnamed_file();
  const int error = unnamed_file();
  e.status = wait_for(start(command, more, out, error));
  e.out = contents(out);
  e.error = contents(error);
  ::close(out);
  ::close(error);
  return e;
}

server_process::server_process(const std::string& directory, std::vector<std::string> more,
                               const environment& variables) {
  std::vector<std::string> command{tool(), "serve", "--listen", "127.0.0.1:0", "--data", directory};
  command.insert(command.end(), more.begin(), more.end());
  int line[2];
  if (::pipe2(line, O_CLOEXEC) != 0) fail("pipe2");
  error_ = unnamed_file();
  pid_ = start(command, variables, line[1], error_);
  ::close(line[1]);
  out_ = line[0];
  std::string text;
  for (char c = 0; ::read(out_, &c, 1) == 1 && c != '\n';) text.push_back(c);
  const std::string before = "127.0.0.1:";
  if (const auto at = text.find(before); at != std::string::npos) {
    port_ = static_cast<std::uint16_t>(std::stoi(text.substr(at + before.size())));
  }
}

server_process::~server_process() {
  if (!status_) kill();
  ::close(out_);
  ::close(error_);
}

bool server_process::is_running() {
  if (status_) return false;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return true;
  status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return false;
}

void server_process::kill() {
  if (status_) return;
  ::kill(pid_, SIGKILL);
  status_ = wait_for(pid_);
}

ended server_process::stop() {
  if (!status_) ::kill(pid_, SIGTERM);
  return wait();
}

ended server_process::wait() {
  ended e;
  char piece[4096];
  for (ssize_t n = 0; (n = ::read(out_, piece, sizeof piece)) > 0;) {
    e.out.append(piece, static_cast<std::size_t>(n));
  }
  if (!status_) status_ = wait_for(pid_);
  e.status = *status_;
  e.error = contents(error_);
  return e;
}

std::string tool() {
  const char* const other = std::getenv("VERGE_CRASH_TOOL");
  return other != nullptr ? other : VERGE_TOOL;
}

environment with_recorder(environment more) {
  more.emplace_back("LD_PRELOAD", VERGE_DISK_RECORDER);
  return more;
}

}  // namespace verge::crash
