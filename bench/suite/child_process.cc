// SPDX-License-Identifier: Apache-2.0

#include "child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>

namespace verge::bench {
namespace {

/// The files a child gets as its standard input and output, and where it starts; -1 is ours.
struct surroundings {
  const char* folder{nullptr};
  int input{-1};
  int output{-1};
};

pid_t start(std::vector<std::string> words, const surroundings& s) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (s.folder != nullptr) posix_spawn_file_actions_addchdir_np(&actions, s.folder);
  if (s.input >= 0) posix_spawn_file_actions_adddup2(&actions, s.input, STDIN_FILENO);
  if (s.output >= 0) posix_spawn_file_actions_adddup2(&actions, s.output, STDOUT_FILENO);
  pid_t pid = -1;
  const int code = posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (code == ENOENT) throw program_not_found(words[0] + " was not found");
  if (code != 0) {
    throw std::runtime_error("cannot start " + words[0] + ": " +
                             std::generic_category().message(code));
  }
  return pid;
}

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot make a pipe");
  }
  return ends;
}

void close_if_open(int& descriptor) {
  if (descriptor >= 0) close(descriptor);
  descriptor = -1;
}

}  // namespace

bool run_program(const std::vector<std::string>& words, const std::string& folder) {
  const pid_t pid = start(words, {folder.c_str(), -1, STDERR_FILENO});
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return false;
  }
  return status == 0;
}

child_process::child_process(const std::vector<std::string>& words) : name_(words.at(0)) {
  std::signal(SIGPIPE, SIG_IGN);  // a program that has ended is an error, but must not end this one
  auto to_child = make_pipe();
  auto from_child = make_pipe();
  requests_ = to_child[1];
  answers_ = from_child[0];
  try {
    pid_ = start(words, {nullptr, to_child[0], from_child[1]});
  } catch (...) {
    for (int& end : to_child) close_if_open(end);
    for (int& end : from_child) close_if_open(end);
    throw;
  }
  close(to_child[0]);
  close(from_child[1]);
}

child_process::~child_process() {
  close_if_open(requests_);
  if (pid_ > 0) {
    if (owes_an_answer_) kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  close_if_open(answers_);
}

std::string child_process::ask(const std::string& line, std::chrono::seconds at_most) {
  using clock = std::chrono::steady_clock;
  const auto fail = [&](const std::string& why) {
    throw std::runtime_error(name_ + " was asked for: " + line + "; " + why);
  };
  const std::string text = line + "\n";
  owes_an_answer_ = true;
  if (write(requests_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    fail("it had ended before");
  }
  const auto end = clock::now() + at_most;
  for (;;) {
    if (const auto at = unread_.find('\n'); at != std::string::npos) {
      std::string answer = unread_.substr(0, at);
      unread_.erase(0, at + 1);
      owes_an_answer_ = false;
      return answer;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - clock::now());
    if (left.count() <= 0) {
      fail("it gave no answer within " + std::to_string(at_most.count()) + " s and was ended");
    }
    pollfd readable{.fd = answers_, .events = POLLIN, .revents = 0};
    const int ready = poll(&readable, 1, static_cast<int>(left.count()));
    if (ready < 0) fail(errno == EINTR ? "interrupted" : std::generic_category().message(errno));
    if (ready == 0) continue;
    std::array<char, 65536> buffer{};
    const ssize_t got = read(answers_, buffer.data(), buffer.size());
    if (got <= 0) fail("it ended without an answer");
    unread_.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace verge::bench
