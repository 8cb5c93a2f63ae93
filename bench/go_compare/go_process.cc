#include "go_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <vector>

namespace verge::bench {
namespace {

[[noreturn]] void fail(const std::string& text) { throw std::runtime_error(text); }

/// The files a child gets as its standard input and output, and where it starts; -1 is ours.
struct surroundings {
  const char* folder{nullptr};
  int input{-1};
  int output{-1};
};

pid_t start(std::vector<std::string> words, const surroundings& s) {
  std::vector<char*> arguments;
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
  if (code == ENOENT) {
    fail(words[0] + " was not found; Debian has it: sudo apt-get install golang-go");
  }
  if (code != 0) fail("cannot start " + words[0] + ": " + std::strerror(code));
  return pid;
}

/// Needs no network: the program uses nothing but Go's standard library.
void build(const std::filesystem::path& source, const std::filesystem::path& binary) {
  setenv("GO111MODULE", "on", 1);
  setenv("GOFLAGS", "-mod=mod", 1);
  setenv("GOTOOLCHAIN", "local", 1);
  setenv("GOPROXY", "off", 1);
  if (getenv("HOME") == nullptr) {
    setenv("GOCACHE", (binary.parent_path() / "go-cache").c_str(), 0);
  }
  const std::string folder = source.string();
  const pid_t pid = start({"go", "build", "-o", binary.string(), "."}, {folder.c_str(), -1, -1});
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || status != 0) {
    fail("go build failed in " + folder + "; it says why above (Go 1.19 or later is needed)");
  }
}

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot make a pipe to Go's program");
  }
  return ends;
}

/// Where the value of "key": starts in an answer, which is one line of flat JSON without blanks.
std::optional<std::string> value_of(const std::string& answer, const std::string& key) {
  const std::string quoted = "\"" + key + "\":";
  const auto at = answer.find(quoted);
  if (at == std::string::npos) return std::nullopt;
  return answer.substr(at + quoted.size());
}

std::string string_of(const std::string& value) { return value.substr(1, value.find('"', 1) - 1); }

std::vector<double> numbers_of(const std::string& value) {
  std::vector<double> numbers;
  const char* at = value.c_str();
  while (*at == '[' || *at == ',') {
    char* end = nullptr;
    numbers.push_back(std::strtod(at + 1, &end));
    at = end;
  }
  return numbers;
}

std::string request_for(const std::string& workload, const parameters& p) {
  return workload + " processors=" + std::to_string(p.processors) +
         " background=" + std::to_string(p.background) +
         " milliseconds=" + std::to_string(p.duration.count()) +
         " samples=" + std::to_string(p.samples) + " sleep_us=" + std::to_string(p.sleep.count()) +
         " tickers=" + std::to_string(p.tickers);
}

}  // namespace

go_process::go_process(const std::filesystem::path& source, const std::filesystem::path& binary) {
  build(source, binary);
  std::signal(SIGPIPE, SIG_IGN);  // a program that has ended is an error, not our end
  const auto to_go = make_pipe();
  const auto from_go = make_pipe();
  requests_.reset(fdopen(to_go[1], "w"));
  answers_.reset(fdopen(from_go[0], "r"));
  pid_ = start({binary.string()}, {nullptr, to_go[0], from_go[1]});
  close(to_go[0]);
  close(from_go[1]);
  version_ = string_of(value_of(ask("Version"), "version").value_or("\"\""));
}

go_process::~go_process() {
  requests_.reset();
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

std::string go_process::ask(const std::string& request) {
  std::fprintf(requests_.get(), "%s\n", request.c_str());
  std::fflush(requests_.get());
  std::string answer;
  for (int c = 0; (c = std::getc(answers_.get())) != '\n';) {
    if (c == EOF) fail("Go's program ended while it was asked for: " + request);
    answer.push_back(static_cast<char>(c));
  }
  if (const auto error = value_of(answer, "error")) {
    fail("Go's program was asked for: " + request + "; it says: " + string_of(*error));
  }
  return answer;
}

figures go_process::run(const std::string& workload, const parameters& p) {
  const std::string answer = ask(request_for(workload, p));
  figures f;
  if (const auto v = value_of(answer, "ns_per_operation")) f.ns_per_operation = std::stod(*v);
  if (const auto v = value_of(answer, "late_ns")) f.late_ns = numbers_of(*v);
  return f;
}

}  // namespace verge::bench
