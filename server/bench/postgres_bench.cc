// SPDX-License-Identifier: Apache-2.0

#include "postgres_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "../tests/support/database.h"
#include "cluster/leases.h"
#include "lateness.h"
#include "load.h"
#include "peers.h"
#include "report.h"
#include "sql_queue.h"

namespace verge::server::bench {

namespace {

using namespace std::chrono_literals;
using test::database;

/// All of a tube is in one shard: a load on one tube, which is measured too, is a load on one
/// shard.
constexpr int most_tubes = 64;

/// Beside what every server gets. Nothing is vacuumed, which is what the part about deletes is
/// about, and what makes the others the harder for everyone.
const std::vector<std::string> settings{"autovacuum=off", "max_connections=400",
                                        "shared_buffers=512MB", "max_wal_size=4GB"};

std::string tube(int number) { return fmt::format("tube{}", number); }

std::string named(std::size_t servers) {
  return fmt::format("verge, {} server{} on PostgreSQL", servers, servers == 1 ? "" : "s");
}
const std::string in_one_tube = "verge, 1 server, all in one tube";
const std::string on_rocksdb = "verge, 1 server on RocksDB";
const std::string row_by_row = "INSERT of single rows";

/// A way to use the table of jobs.
struct table_use {
  std::string name;
  sql_queue::fetching how;
};
const std::vector<table_use>& table_uses() {
  static const std::vector<table_use> all{
      {"SKIP LOCKED, 64 workers, one each", {.connections = 64, .at_once = 1, .together = false}},
      {"SKIP LOCKED, 4 x 64, one by one", {.connections = 4, .at_once = 64, .together = false}},
      {"SKIP LOCKED, 4 x 64, together", {.connections = 4, .at_once = 64, .together = true}}};
  return all;
}

/// Servers that share the database, each of which has the shards that are its own.
class servers {
 public:
  servers(const tasks_options& o, const database& base, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint16_t port = free_port();
      processes_.push_back(std::make_unique<server_process>(
          std::vector<std::string>{o.verge, "serve", "--store", base.url(), "--listen",
                                   "127.0.0.1:" + std::to_string(port)},
          port));
      ports_.push_back(port);
    }
    postgres::link to(base.options());
    for (int i = 0; !are_placed(cluster::look(to), count); ++i) {
      if (i == 6000) throw std::runtime_error("the shards are not placed");
      std::this_thread::sleep_for(10ms);
    }
    // Until they are served: an owner reads what a shard has before.
    play(ports_, most_tubes, 1e9,
         [](int n) { return in_tube(tube(n), beanstalk_fill(1, body_size, 0, 1)); });
  }
  const std::vector<std::uint16_t>& ports() const noexcept { return ports_; }

 private:
  static bool are_placed(const cluster::roster& r, std::size_t count) {
    return r.nodes.size() == count &&
           std::all_of(r.shards.begin(), r.shards.end(), [&](const cluster::shard_record& s) {
             return s.owner == cluster::place_of(s.shard, r.nodes)->name;
           });
  }
  std::vector<std::unique_ptr<server_process>> processes_;
  std::vector<std::uint16_t> ports_;
};

class postgres_run {
 public:
  explicit postgres_run(const tasks_options& o)
      : options_(o), base_(settings, true, o.directory), table_(base_.url()) {
    if (o.quick) {
      counts_ = {1, 2};
      connections_ = {1, 16};
      options_.deletes = std::min<unsigned long long>(o.deletes, 10'000);
      options_.seconds = std::min(o.seconds, 0.3);
    }
  }

  int run() {
    describe();
    for (int round = 0; round < options_.rounds; ++round) {
      fmt::print("round {} of {}\n", round + 1, options_.rounds);
      std::fflush(stdout);
      if (options_.wants("puts") || options_.wants("reserves")) {
        for (const std::size_t n : counts_) shared(n);
        alone();
        rows();
      }
      if (options_.wants("deletes")) deletes();
    }
    fmt::print("\n");
    for (const std::string& title : titles_) report(json_, title, all_[title], names_);
    if (options_.wants("lateness")) lateness();
    if (options_.wants("idle")) idle();
    write_figures(json_, options_.json);
    return 0;
  }

 private:
  void describe() {
    report_disk(json_, options_.directory);
    fmt::print("PostgreSQL {}, {}", database::programs(), "fsync=on, synchronous_commit=on");
    for (const std::string& s : settings) fmt::print(", {}", s);
    fmt::print("; {} tubes at most, connections are spread over the servers\n\n", most_tubes);
    json_["settings"] = settings;
  }

  /// Titles and names are printed in the order in which they are measured first.
  void add(const std::string& title, const std::string& name, const load_figures& f) {
    if (f.operations == 0) throw std::runtime_error(title + ", " + name + ": nothing was done");
    const auto note = [](std::vector<std::string>& in, const std::string& s) {
      if (std::find(in.begin(), in.end(), s) == in.end()) in.push_back(s);
    };
    note(titles_, title);
    note(names_, name);
    all_[title][name].push_back(f);
  }

  static std::string puts_at(int connections) {
    return fmt::format("puts, {} connection{}, {} bytes", connections, connections == 1 ? "" : "s",
                       body_size);
  }
  static std::string work_at(int connections) {
    return fmt::format("reserve and delete, {} connection{}", connections,
                       connections == 1 ? "" : "s");
  }
  static constexpr const char* work_of_tables = "reserve and delete, of a table of jobs";

  /// A checkpoint would come at any time otherwise.
  void begin_afresh() const { postgres::link(base_.options()).script("CHECKPOINT"); }

  load_figures puts(const std::vector<std::uint16_t>& ports, int connections, int tubes) const {
    return play(ports, connections, options_.seconds,
                [&](int n) { return in_tube(tube(n % tubes), beanstalk_puts(body_size, 0)); });
  }
  /// Fills the tubes before, with as many as may be reserved in the time.
  load_figures work(const std::vector<std::uint16_t>& ports, int connections, int tubes,
                    double most) const {
    const auto each = static_cast<std::uint64_t>(most * options_.seconds / most_tubes) + 1;
    play(ports, most_tubes, 1e9,
         [&](int n) { return in_tube(tube(n % tubes), beanstalk_fill(each, body_size, 0, 64)); });
    const load_figures f = play(ports, connections, options_.seconds, [&](int n) {
      return in_tube(tube(n % tubes), beanstalk_reserves());
    });
    if (f.per_second > 0.9 * most) {
      fmt::print("at {} connections the tubes may have been empty: take more seconds\n",
                 connections);
    }
    return f;
  }
  static double most_at(int connections) { return connections == 1 ? 8e3 : 60e3; }

  void shared(std::size_t count) {
    base_.empty();
    const servers all(options_, base_, count);
    measure(all.ports(), named(count), most_tubes, 1);
    if (count == 1) measure(all.ports(), in_one_tube, 1, 1);
  }

  void alone() {
    const scratch_directory dir(options_.directory);
    const std::uint16_t port = free_port();
    const server_process process(
        {options_.verge, "serve", "--listen", "127.0.0.1:" + std::to_string(port), "--data",
         dir.path() / "tasks"},
        port);
    measure({port}, on_rocksdb, most_tubes, 2);
  }

  /// `speed` is about how many times that of a database.
  void measure(const std::vector<std::uint16_t>& ports, const std::string& name, int tubes,
               double speed) {
    for (const int c : connections_) {
      const int used = std::min(c, tubes);
      if (options_.wants("puts")) {
        begin_afresh();
        add(puts_at(c), name, puts(ports, c, used));
      }
      if (options_.wants("reserves")) {
        const double most = most_at(c) * speed;
        begin_afresh();
        add(work_at(c), name, work(ports, c, used, most));
      }
    }
  }

  void rows() {
    base_.empty();
    if (options_.wants("puts")) {
      for (const int c : connections_) {
        table_.make();
        begin_afresh();
        add(puts_at(c), row_by_row, table_.inserts(c, options_.seconds, body_size));
      }
    }
    for (const table_use& u : table_uses()) {
      if (!options_.wants("reserves")) break;
      table_.make();
      table_.fill(jobs(), body_size);
      begin_afresh();
      add(work_of_tables, u.name, table_.work(u.how, options_.seconds));
    }
  }
  std::uint64_t jobs() const { return static_cast<std::uint64_t>(60e3 * options_.seconds); }

  /// The same work again, on tables that so many rows were deleted of.
  void deletes() {
    const int connections = connections_.back() < 64 ? connections_.back() : 64;
    const std::string title = fmt::format("reserve and delete, {} connections, after {} deletes",
                                          connections, options_.deletes);
    {
      base_.empty();
      const servers one(options_, base_, 1);
      const std::uint64_t each = options_.deletes / most_tubes;
      play(one.ports(), most_tubes, 1e9,
           [&](int n) { return in_tube(tube(n), beanstalk_deletes(each, body_size, 64)); });
      begin_afresh();
      add(title, named(1), work(one.ports(), connections, most_tubes, most_at(connections)));
    }
    base_.empty();
    for (const table_use& u : table_uses()) {
      table_.make();
      table_.churn(options_.deletes, body_size);
      table_.fill(jobs(), body_size);
      begin_afresh();
      add(title, u.name,
          table_.work(u.how, options_.quick ? options_.seconds : std::max(options_.seconds, 2.0)));
    }
  }

  void lateness() {
    const int seconds = options_.quick ? 2 : 20;
    for (const std::size_t n : {std::size_t{1}, std::size_t{2}}) {
      if (options_.quick && n == 1) continue;
      base_.empty();
      const servers all(options_, base_, n);
      json_["lateness"][named(n)] = measure_lateness(all.ports(), named(n), 100, seconds);
    }
    fmt::print("\n");
  }

  /// As PostgreSQL counts them: a session may report ten seconds late, and each look is one.
  std::int64_t transactions(postgres::link& at) const {
    return at
        .run_here({{"SELECT (xact_commit + xact_rollback)::int8 FROM pg_stat_database "
                    "WHERE datname = current_database()",
                    {}}})
        .front()
        .number(0, 0);
  }
  void idle() {
    const auto length = options_.quick ? 1s : 60s;
    const auto settling = options_.quick ? 0s : 15s;
    for (const std::size_t n : counts_) {
      if (options_.quick && n > 1) continue;
      base_.empty();
      const servers all(options_, base_, n);
      play(all.ports(), 16, 1e9,
           [&](int i) { return in_tube(tube(i), beanstalk_fill(100, body_size, 100'000, 64)); });
      std::this_thread::sleep_for(settling);
      postgres::link to(base_.options());
      const std::int64_t before = transactions(to);
      std::this_thread::sleep_for(length);
      const auto made =
          static_cast<double>(std::max<std::int64_t>(transactions(to) - before - 1, 0));
      const double rate = made / std::chrono::duration<double>(length).count();
      fmt::print("transactions in an idle second, 1600 delayed tasks: {:34} {:.2f}\n", named(n),
                 rate);
      json_["idle"][named(n)] = {{"transactions_per_second", rate}};
      std::fflush(stdout);
    }
    fmt::print("\n");
  }

  tasks_options options_;
  database base_;
  sql_queue table_;
  std::vector<std::size_t> counts_{1, 2, 4};
  std::vector<int> connections_{1, 16, 64, 256};
  std::vector<std::string> titles_, names_;
  std::map<std::string, figures_by_name> all_;
  nlohmann::json json_;
};

}  // namespace

int run_postgres_bench(const tasks_options& options) {
  if (!database::is_installed()) {
    throw std::runtime_error("PostgreSQL is not installed: Debian has it as postgresql");
  }
  constexpr std::array parts{"puts", "reserves", "deletes", "lateness", "idle"};
  for (const std::string& one : options.only) {
    if (std::find(parts.begin(), parts.end(), one) == parts.end()) {
      throw std::invalid_argument("with --store postgres there is no part '" + one +
                                  "': there are puts, reserves, deletes, lateness, idle");
    }
  }
  return postgres_run(options).run();
}

}  // namespace verge::server::bench
