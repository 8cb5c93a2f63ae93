// SPDX-License-Identifier: Apache-2.0

#include "tasks_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "broker/committer.h"
#include "http_bench.h"
#include "lateness.h"
#include "load.h"
#include "peers.h"
#include "postgres_bench.h"
#include "report.h"

namespace verge::server::bench {

namespace {

/// A system that can be started: with a directory, on a port.
struct contender {
  std::string name;
  std::function<std::vector<std::string>(const std::string& dir, std::uint16_t port)> command;
  bool redis{false};
  double reserves_per_second;  ///< about, so that enough tasks are there to be reserved
};

std::vector<contender> contenders(const tasks_options& o) {
  const auto verge = [&](const std::vector<std::string>& more) {
    return [=, tool = o.verge](const std::string& dir, std::uint16_t port) {
      std::vector<std::string> c{
          tool, "serve", "--listen", "127.0.0.1:" + std::to_string(port), "--data", dir + "/tasks"};
      c.insert(c.end(), more.begin(), more.end());
      return c;
    };
  };
  std::vector<contender> all;
  all.push_back({"verge, synced", verge({}), false, 60e3});
  all.push_back({"verge, synced, leases in memory", verge({"--leases=memory"}), false, 120e3});
  all.push_back({"verge, in memory", verge({"--durability=none"}), false, 120e3});
  if (const std::string b = program("beanstalkd"); !b.empty()) {
    all.push_back({"beanstalkd -f0",
                   [b](const std::string& dir, std::uint16_t port) {
                     return std::vector<std::string>{
                         b, "-l", "127.0.0.1", "-p", std::to_string(port), "-b", dir, "-f0"};
                   },
                   false, 6e3});
    all.push_back(
        {"beanstalkd in memory",
         [b](const std::string&, std::uint16_t port) {
           return std::vector<std::string>{b, "-l", "127.0.0.1", "-p", std::to_string(port)};
         },
         false, 60e3});
  } else {
    fmt::print("beanstalkd is not installed: left out\n");
  }
  if (const std::string r = program("redis-server"); !r.empty()) {
    all.push_back({"Redis, appendfsync always",
                   [r](const std::string& dir, std::uint16_t port) {
                     return std::vector<std::string>{r,
                                                     "--port",
                                                     std::to_string(port),
                                                     "--bind",
                                                     "127.0.0.1",
                                                     "--dir",
                                                     dir,
                                                     "--appendonly",
                                                     "yes",
                                                     "--appendfsync",
                                                     "always",
                                                     "--save",
                                                     ""};
                   },
                   true, 25e3});
  } else {
    fmt::print("redis-server is not installed: left out\n");
  }
  return all;
}

struct running {
  scratch_directory dir;
  server_process process;
  std::vector<std::string> shas;

  running(const tasks_options& o, const contender& c) : dir(o.directory), process(make(c, dir)) {
    if (!c.redis) return;
    for (const std::string& script : redis_scripts()) {
      const std::string reply = ask(process.port(),
                                    "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$" +
                                        std::to_string(script.size()) + "\r\n" + script + "\r\n",
                                    "\r\n");
      // $40\r\nSHA\r\n
      shas.push_back(reply.substr(reply.find('\n') + 1, 40));
    }
  }

 private:
  static server_process make(const contender& c, const scratch_directory& dir) {
    const std::uint16_t port = free_port();
    return {c.command(dir.path(), port), port};
  }
};

class bench_run {
 public:
  explicit bench_run(const tasks_options& o) : options_(o), contenders_(contenders(o)) {}

  int run() {
    report_disk(json_, options_.directory);
    fmt::print("\n");
    if (options_.wants("puts")) puts();
    if (options_.wants("reserves")) reserves();
    if (options_.wants("http")) json_["http"] = measure_http(options_);
    if (options_.wants("churn")) churn();
    if (options_.wants("lateness")) lateness();
    if (options_.wants("memory")) memory();
    if (options_.wants("many")) many();
    write_figures(json_, options_.json);
    return 0;
  }

 private:
  void report(const std::string& title, const figures_by_name& all,
              const std::vector<std::string>& names) {
    bench::report(json_, title, all, names);
  }

  std::vector<std::string> order() const {
    std::vector<std::string> names;
    for (const contender& c : contenders_) names.push_back(c.name);
    names.emplace_back("bare RocksDB, batches of 64");
    names.emplace_back("bare RocksDB, batches of 256");
    return names;
  }

  void puts() {
    for (const int connections : {1, 64, 1024}) {
      figures_by_name all;
      for (int round = 0; round < options_.rounds; ++round) {
        for (const contender& c : contenders_) {
          if (c.name.find("leases") != std::string::npos) continue;  // not about puts
          running r(options_, c);
          all[c.name].push_back(play(r.process.port(), connections, options_.seconds, [&](int n) {
            return c.redis ? redis_puts(body_size, r.shas[0], n) : beanstalk_puts(body_size, 0);
          }));
        }
        if (connections == 1) continue;
        const std::size_t batch = connections == 64 ? 64 : 256;
        all[fmt::format("bare RocksDB, batches of {}", batch)].push_back(
            {.per_second = bare_rocksdb(options_.directory, batch, options_.seconds)});
      }
      report(fmt::format("puts, {} connection{}, {} bytes", connections,
                         connections == 1 ? "" : "s", body_size),
             all, order());
    }
  }

  void reserves() {
    for (const int connections : {1, 64}) {
      figures_by_name all;
      for (int round = 0; round < options_.rounds; ++round) {
        for (const contender& c : contenders_) {
          running r(options_, c);
          const double rate =
              connections == 1 ? std::min(c.reserves_per_second, 10e3) : c.reserves_per_second;
          const auto count = static_cast<std::uint64_t>(rate * options_.seconds);
          if (c.redis) {
            // Filled over many connections: each waits for its reply.
            play(r.process.port(), 64, static_cast<double>(count) / 20e3,
                 [&](int n) { return redis_puts(body_size, r.shas[0], n); });
          } else {
            play(r.process.port(), 16, 1e9,
                 [&](int) { return beanstalk_fill(count / 16, body_size, 0, 64); });
          }
          all[c.name].push_back(play(r.process.port(), connections, options_.seconds, [&](int) {
            return c.redis ? redis_reserves(r.shas[1], r.shas[2]) : beanstalk_reserves();
          }));
        }
      }
      report(fmt::format("reserve and delete, {} connection{}", connections,
                         connections == 1 ? "" : "s"),
             all, order());
    }
  }

  static double figure(const std::string& stats, const std::string& name) {
    const auto at = stats.find("\n" + name + ": ");
    return at == std::string::npos ? 0 : std::stod(stats.substr(at + name.size() + 3));
  }

  void churn() {
    running r(options_, contenders_[0]);
    const double seconds = options_.quick ? 5 : 30;
    const load_figures f =
        play(r.process.port(), 64, seconds, [&](int n) { return beanstalk_cancels(body_size, n); });
    const std::string stats = ask(r.process.port(), "stats\r\n", "verge-disk-bytes: ");
    const double written = figure(stats, "verge-bytes-written");
    const double user = static_cast<double>(f.operations) * (body_size + 16);
    fmt::print(
        "put with a key and cancel, 64 connections: {:.0f} pairs/s; {:.2f} bytes written "
        "for each byte of the user's\n\n",
        f.per_second, written / user);
    json_["churn"] = {{"pairs_per_second", f.per_second}, {"written_per_byte", written / user}};
  }

  void memory() {
    const std::uint64_t count = options_.quick ? 100'000 : 1'000'000;
    for (const contender& c : contenders_) {
      if (c.redis || c.name == "beanstalkd -f0" || c.name.find("leases") != std::string::npos) {
        continue;
      }
      running r(options_, c);
      play(r.process.port(), 16, 1e9,
           [&](int) { return beanstalk_fill(count / 16, body_size, 100'000, 64); });
      std::this_thread::sleep_for(std::chrono::seconds(2));
      const double mb = static_cast<double>(r.process.resident_bytes()) / 1e6;
      fmt::print("{} delayed tasks of {} bytes: {:34} {:.0f} MB resident, {:.0f} MB on disk\n",
                 count, body_size, c.name, mb, static_cast<double>(r.dir.bytes()) / 1e6);
      json_["memory"][c.name] = {{"tasks", count}, {"resident_mb", mb}};
      std::fflush(stdout);
    }
    fmt::print("\n");
  }

  /// Puts tasks that are due one by one, and measures how late each is received.
  void lateness() {
    const int per_second = 1000;
    const int seconds = options_.quick ? 3 : 10;
    for (const contender& c : contenders_) {
      if (c.name.find("verge, synced") == std::string::npos) continue;
      running r(options_, c);
      json_["lateness"][c.name] = measure_lateness({r.process.port()}, c.name, per_second, seconds);
    }
    fmt::print("\n");
  }

  void many() {
    const std::uint64_t count = options_.quick ? 200'000 : options_.many;
    const contender& c = contenders_[0];
    const scratch_directory dir(options_.directory);
    const std::uint16_t port = free_port();
    const auto arguments = c.command(dir.path(), port);
    {
      server_process process(arguments, port);
      const auto begin = std::chrono::steady_clock::now();
      play(port, 16, 1e9, [&](int) { return beanstalk_fill(count / 16, body_size, 100'000, 256); });
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      ask(port, "put 0 0 60 5\r\nfirst\r\n", "INSERTED");
      const double mb = static_cast<double>(process.resident_bytes()) / 1e6;
      fmt::print(
          "{} delayed tasks: {:.0f} puts/s, {:.0f} MB resident, {:.0f} bytes on disk for each\n",
          count, static_cast<double>(count) / took.count(), mb,
          static_cast<double>(dir.bytes()) / static_cast<double>(count));
      json_["many"] = {
          {"tasks", count},
          {"puts_per_second", static_cast<double>(count) / took.count()},
          {"resident_mb", mb},
          {"disk_bytes_each", static_cast<double>(dir.bytes()) / static_cast<double>(count)}};
      process.end(true);
    }
    const auto begin = std::chrono::steady_clock::now();
    server_process again(arguments, port);
    const std::string got = ask(port, "reserve-with-timeout 60\r\n", "\r\nfirst\r\n");
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    fmt::print("killed with -9 and started again: {} after {:.2f} s, {:.0f} MB resident\n\n",
               got.starts_with("RESERVED") ? "the first task was reserved" : "NO TASK CAME",
               took.count(), static_cast<double>(again.resident_bytes()) / 1e6);
    json_["many"]["first_reserve_s"] = took.count();
  }

  tasks_options options_;
  std::vector<contender> contenders_;
  nlohmann::json json_;
};

}  // namespace

bool tasks_options::wants(const std::string& part) const {
  return only.empty() || std::find(only.begin(), only.end(), part) != only.end();
}

int run_tasks_bench(const tasks_options& options) {
  const std::vector<std::string> parts =
      options.store == "postgres"
          ? std::vector<std::string>{"puts", "reserves", "deletes", "lateness", "idle"}
          : std::vector<std::string>{"puts",     "reserves", "http", "churn",
                                     "lateness", "memory",   "many"};
  for (const std::string& part : options.only) {
    if (std::find(parts.begin(), parts.end(), part) != parts.end()) continue;
    throw std::invalid_argument(fmt::format("--only {}: with --store {} the parts are {}", part,
                                            options.store, fmt::join(parts, ", ")));
  }
  if (options.store == "postgres") return run_postgres_bench(options);
  return bench_run(options).run();
}

}  // namespace verge::server::bench
