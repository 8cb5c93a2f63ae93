// SPDX-License-Identifier: Apache-2.0

#include "peers.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/write_batch.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace verge::server::bench {

namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

bool answers(std::uint16_t port) {
  const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool yes = ::connect(s, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
  ::close(s);
  return yes;
}

}  // namespace

scratch_directory::scratch_directory(const std::filesystem::path& under) {
  std::string name = (under / "verge-bench-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw std::system_error(errno, std::generic_category(),
                            "making a directory in " + under.string());
  }
  path_ = name;
}

scratch_directory::~scratch_directory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::uint64_t scratch_directory::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& f : std::filesystem::recursive_directory_iterator(path_)) {
    if (f.is_regular_file()) sum += f.file_size();
  }
  return sum;
}

server_process::server_process(std::vector<std::string> arguments, std::uint16_t port)
    : port_(port) {
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid_ == 0) {
    const int nowhere = ::open("/dev/null", O_RDWR);
    ::dup2(nowhere, 0);
    ::dup2(nowhere, 1);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  for (int i = 0; i < 6000; ++i) {
    if (answers(port_)) return;
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      throw std::runtime_error(arguments[0] + " has ended at once");
    }
    std::this_thread::sleep_for(10ms);
  }
  end(true);
  throw std::runtime_error(arguments[0] + " does not answer");
}

server_process::~server_process() { end(); }

void server_process::end(bool kill) {
  if (pid_ < 0) return;
  ::kill(pid_, kill ? SIGKILL : SIGTERM);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
}

std::uint64_t server_process::resident_bytes() const {
  std::ifstream in("/proc/" + std::to_string(pid_) + "/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("VmRSS:")) return std::stoull(line.substr(6)) * 1024;
  }
  return 0;
}

double server_process::cpu_seconds() const {
  std::ifstream in("/proc/" + std::to_string(pid_) + "/stat");
  std::string text;
  std::getline(in, text);
  // After the name, which is in brackets: the 12th and 13th are user and system time, in ticks.
  std::istringstream rest(text.substr(text.rfind(')') + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) rest >> skipped;
  double user = 0;
  double system = 0;
  rest >> user >> system;
  return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

std::uint16_t free_port() {
  const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  if (::bind(s, reinterpret_cast<const sockaddr*>(&at), size) != 0 ||
      ::getsockname(s, reinterpret_cast<sockaddr*>(&at), &size) != 0) {
    throw std::system_error(errno, std::generic_category(), "finding a free port");
  }
  ::close(s);
  return ntohs(at.sin_port);
}

std::string program(const std::string& name) {
  const char* path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): nothing sets it
  std::istringstream in(path == nullptr ? "/usr/bin" : path);
  for (std::string dir; std::getline(in, dir, ':');) {
    const std::filesystem::path p = std::filesystem::path(dir) / name;
    if (::access(p.c_str(), X_OK) == 0) return p;
  }
  return {};
}

disk_figures measure_disk(const std::filesystem::path& under) {
  const scratch_directory dir(under);
  const int f = ::open((dir.path() / "log").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  std::vector<double> times;
  const std::string block(4096, 'x');
  for (int i = 0; i < 500; ++i) {
    const auto begin = clock::now();
    if (::write(f, block.data(), block.size()) < 0 || ::fdatasync(f) != 0) {
      ::close(f);
      throw std::system_error(errno, std::generic_category(), "writing to " + dir.path().string());
    }
    times.push_back(std::chrono::duration<double, std::micro>(clock::now() - begin).count());
  }
  ::close(f);
  std::sort(times.begin(), times.end());
  return {.p50_us = times[times.size() / 2], .p99_us = times[times.size() * 99 / 100]};
}

double bare_rocksdb(const std::filesystem::path& under, std::size_t batch, double seconds) {
  const scratch_directory dir(under);
  rocksdb::Options options;
  options.create_if_missing = true;
  rocksdb::DB* made = nullptr;
  if (!rocksdb::DB::Open(options, dir.path().string(), &made).ok()) return 0;
  const std::unique_ptr<rocksdb::DB> db(made);
  rocksdb::WriteOptions synced;
  synced.sync = true;
  const std::string body(240, 'b');
  std::uint64_t id = 0;
  const auto begin = clock::now();
  const auto end = begin + std::chrono::duration<double>(seconds);
  while (clock::now() < end) {
    rocksdb::WriteBatch changes;
    for (std::size_t i = 0; i < batch; ++i) {
      char key[21] = {};
      ++id;
      for (int k = 0; k < 8; ++k) key[k + 1] = static_cast<char>(id >> (56 - 8 * k));
      key[0] = 'T';
      static_cast<void>(changes.Put({key, 9}, body));
      key[0] = 'D';
      static_cast<void>(changes.Put({key, 21}, {}));
    }
    if (!db->Write(synced, &changes).ok()) break;
  }
  return static_cast<double>(id) / std::chrono::duration<double>(clock::now() - begin).count();
}

}  // namespace verge::server::bench
