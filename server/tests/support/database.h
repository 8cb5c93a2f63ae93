// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "postgres/link.h"

/// A PostgreSQL of a test's own, or of a benchmark's: in a directory of its own, on a socket in it,
/// as the user `postgres` where the test runs as root, and ended by its number.
namespace verge::server::test {

class database {
 public:
  static bool is_installed() { return !programs().empty(); }

  /// `more` are settings, as "name=value". Unless `synced`, the disk is not waited for.
  explicit database(std::vector<std::string> more = {}, bool synced = false,
                    const std::filesystem::path& under = std::filesystem::temp_directory_path())
      : settings_(std::move(more)), synced_(synced), path_(make_directory(under)) {
    run({programs() + "/initdb", "--pgdata", path_ + "/data", "--auth=trust", "--username=postgres",
         "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"});
    start();
  }
  /// A standby of the database whose socket is in the directory `primary`, known there by `name`.
  database(const std::string& primary, const std::string& name, bool synced)
      : settings_({"cluster_name=" + name}),
        synced_(synced),
        is_standby_(true),
        path_(make_directory(std::filesystem::temp_directory_path())) {
    run({programs() + "/pg_basebackup", "--host=" + primary, "--username=postgres",
         "--pgdata=" + path_ + "/data", "--write-recovery-conf", "--wal-method=stream",
         "--checkpoint=fast", "--no-sync"});
    start();
  }
  database(const database&) = delete;
  database& operator=(const database&) = delete;
  ~database() {
    stop();
    std::filesystem::remove_all(path_);
  }

  void start() {
    std::vector<std::string> command{programs() + "/postgres",
                                     "-D",
                                     path_ + "/data",
                                     "-k",
                                     path_,
                                     "-c",
                                     "listen_addresses=",
                                     "-c",
                                     "max_connections=200",
                                     "-c",
                                     "shared_buffers=64MB"};
    if (!synced_) {
      for (const char* s : {"fsync=off", "full_page_writes=off"}) {
        command.emplace_back("-c");
        command.emplace_back(s);
      }
    }
    for (const std::string& s : settings_) {
      command.emplace_back("-c");
      command.push_back(s);
    }
    pid_ = spawn(command, path_ + "/log");
    for (int i = 0;; ++i) {
      try {
        postgres::link(options()).run_here({{"SELECT 1::int8", {}}});
        return;
      } catch (const store_error& e) {
        // A link refuses a standby, which answers then.
        const std::string why = e.what();
        if (is_standby_ && why.find("is a standby") != std::string::npos) return;
        if (i == 6000) throw;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  /// Connections are cut, nothing is waited for; what was committed is there.
  void stop() { end(SIGINT); }
  /// As when the machine stops.
  void crash() { end(SIGQUIT); }
  /// kill -9. Its processes end when they notice; the segment that marks the directory as in use
  /// would stay in the kernel.
  void kill() {
    std::ifstream in(path_ + "/data/postmaster.pid");
    std::string line;
    for (int i = 0; i < 7; ++i) std::getline(in, line);
    end(SIGKILL);
    const std::size_t space = line.find_last_of(' ');
    if (space != std::string::npos) ::shmctl(std::stoi(line.substr(space)), IPC_RMID, nullptr);
  }
  /// The standby takes writes from now on.
  void promote() {
    run({programs() + "/pg_ctl", "promote", "--wait", "--pgdata=" + path_ + "/data"});
    is_standby_ = false;
  }

  std::string directory() const { return path_; }
  pid_t pid() const noexcept { return pid_; }
  std::string url() const { return url_at(path_); }
  static std::string url_at(const std::string& directory) {
    return "postgresql://postgres@/postgres?host=" + directory;
  }
  /// One of the two, whichever takes writes.
  static std::string url_of(const database& one, const database& other) {
    return url_at(one.path_ + "," + other.path_) + "&target_session_attrs=read-write";
  }
  postgres::link_options options() const { return {.url = url(), .must_sync = synced_}; }

  /// Without tables.
  void empty() const {
    postgres::link(options()).script("DROP SCHEMA public CASCADE; CREATE SCHEMA public");
  }

  /// Debian keeps the programs of the server out of PATH.
  static std::string programs() {
    static const std::string found = [] {
      std::string best;
      std::error_code none;
      for (const auto& version : std::filesystem::directory_iterator("/usr/lib/postgresql", none)) {
        const std::string path = version.path() / "bin";
        if (std::filesystem::exists(path + "/initdb") && path > best) best = path;
      }
      return best;
    }();
    return found;
  }

  /// A program of the database, as its user, in a directory that this user may enter.
  static pid_t spawn(std::vector<std::string> command, const std::string& log) {
    if (::geteuid() == 0) {
      const std::vector<std::string> as{"setpriv",        "--reuid=postgres",   "--regid=postgres",
                                        "--clear-groups", "--pdeathsig=SIGINT", "--"};
      command.insert(command.begin(), as.begin(), as.end());
    }
    std::vector<char*> arguments;
    for (std::string& s : command) arguments.push_back(s.data());
    arguments.push_back(nullptr);
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::prctl(PR_SET_PDEATHSIG, SIGINT);
    if (std::freopen(log.c_str(), "a", stdout) == nullptr) ::_exit(126);
    ::dup2(STDOUT_FILENO, STDERR_FILENO);
    if (::chdir("/") != 0) ::_exit(126);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  void run(const std::vector<std::string>& command) const {
    const std::string log = path_ + ".log";
    const pid_t pid = spawn(command, log);
    int status = 0;
    ::waitpid(pid, &status, 0);
    std::filesystem::remove(log);
    if (status != 0) throw std::runtime_error(command.front() + " has failed");
  }

 private:
  static std::string make_directory(const std::filesystem::path& under) {
    std::string name = (std::filesystem::absolute(under) / "verge-base-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    if (::geteuid() == 0) {
      const passwd* const user = ::getpwnam("postgres");
      if (user == nullptr || ::chown(name.c_str(), user->pw_uid, user->pw_gid) != 0) {
        throw std::runtime_error("there is no user postgres");
      }
    }
    return name;
  }
  void end(int signal) {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGCONT);
    ::kill(pid_, signal);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
  }

  std::vector<std::string> settings_;
  bool synced_;
  bool is_standby_{false};
  std::string path_;
  pid_t pid_{-1};
};

/// One for all tests of a program: starting it takes a second.
inline database& shared_database() {
  static database one;
  return one;
}

/// As if a server had taken the shard over.
inline void take_lease(const database& of, std::uint32_t shard, std::int64_t epoch) {
  postgres::link(of.options())
      .run_here({{"UPDATE verge_shard SET epoch = $2::int8, owner = 'test', "
                  "expires = now() + interval '1 hour' WHERE shard = $1::int8",
                  postgres::parameters().number(shard).number(epoch)}});
}

}  // namespace verge::server::test
