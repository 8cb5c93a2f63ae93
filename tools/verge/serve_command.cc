// SPDX-License-Identifier: Apache-2.0

#include "serve_command.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <random>
#include <stdexcept>

#include <verge/version.h>

#include "postgres/schema.h"
#include "serve/inherited.h"
#include "serve/server.h"
#include "text/event_log.h"

namespace verge::server {

namespace {

/// The status of a server whose disk has failed: EX_IOERR of sysexits.h.
constexpr int disk_failed = 74;

/// As many descriptors as the system lets us have: a connection takes one.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

bool is_loopback(const endpoint& at) {
  const std::string text = at.to_string();
  return text.starts_with("127.") || text.starts_with("[::1]");
}

}  // namespace

serve_command::serve_command(CLI::App& tool, CLI::App& bench) {
  serve_ = tool.add_subcommand("serve", "Serve delayed tasks that survive a crash");
  serve_->add_option("--listen", listen_, "Address and port")->capture_default_str();
  serve_
      ->add_option("--http", http_,
                   "Address and port for HTTP, like 127.0.0.1:11380; none if it is not given")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  serve_->add_option("--log", log_, "What is logged to standard error, and in which form")
      ->check(CLI::IsMember({"off", "text", "json"}))
      ->capture_default_str();
  serve_->add_flag("--log-requests", log_requests_, "Every HTTP request is logged as well");
  serve_->add_option("--http-host", http_hosts_,
                     "A name besides localhost that HTTP requests may be sent to");
  auto* const directory =
      serve_->add_option("--data", directory_, "The directory that tasks are kept in")
          ->capture_default_str();
  serve_
      ->add_option("--store", store_,
                   "A database instead, like postgresql://user@host/name: any number of servers "
                   "share its tasks")
      ->excludes(directory);
  serve_
      ->add_option("--peer", peer_,
                   "Address and port at which other servers of the same database reach this one")
      ->capture_default_str();
  serve_
      ->add_option(
          "--lease", lease_,
          "Milliseconds after which the shards of a server that has crashed are taken over")
      ->check(CLI::Range(1'000U, 600'000U))
      ->capture_default_str();
  serve_
      ->add_option("--shards", shards_,
                   "In how many parts the tasks of a new database are divided: servers cannot be "
                   "more than that")
      ->check(CLI::Range(1U, postgres::most_shards))
      ->capture_default_str();
  serve_
      ->add_option("--durability", durability_,
                   "What a reply means. synced: it survives loss of power; written: it survives "
                   "kill -9; none: tasks are in memory alone")
      ->check(CLI::IsMember({"synced", "written", "none"}))
      ->capture_default_str();
  serve_
      ->add_option("--leases", leases_,
                   "durable: reservations are written before tasks are handed out; memory: as "
                   "beanstalkd has them")
      ->check(CLI::IsMember({"durable", "memory"}))
      ->capture_default_str();
  serve_->add_option("--max-body", body_limit_, "The longest body, in bytes")
      ->check(CLI::Range(1U, 1U << 30))
      ->capture_default_str();
  serve_->add_option("--max-connections", connections_, "Connections at one time")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  serve_->add_option("--window", in_memory_, "Tasks in memory; the others are on disk alone")
      ->check(CLI::Range(10'000, 100'000'000))
      ->capture_default_str();
  serve_->add_option("--memtable", memtable_, "Bytes of changes that are gathered for one file")
      ->check(CLI::Range(64U << 10, 1U << 30))
      ->capture_default_str();
  serve_->add_option("--processors", processors_, "Threads that serve; 0: one for each core");
  auto* const certificate =
      serve_->add_option("--tls-cert", certificate_, "A certificate with its chain, in PEM");
  auto* const key = serve_->add_option("--tls-key", key_, "Its key, in PEM");
  certificate->needs(key);
  key->needs(certificate);
  serve_->add_option("--tokens", tokens_,
                     "The file of `verge token`: clients need a token of it from then on");
  serve_->add_flag("--insecure", insecure_,
                   "Listen on an address that other machines can reach, without TLS and tokens");
  serve_->add_flag("--socket-activation", activated_,
                   "The sockets are systemd's: the first for beanstalk's protocol, the second, if "
                   "there is one, for HTTP");
  serve_->add_flag(
      "--push-private", push_private_,
      "Push to receivers at loopback, private and other addresses that are not public");
  serve_->add_option("--push-connections", push_.hosts.all, "Deliveries at one time, of all tubes")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  serve_->add_option("--push-per-host", push_.hosts.each, "Deliveries at one time to one receiver")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  serve_->add_option("--push-rate", push_.hosts.rate,
                     "Deliveries a second to one receiver; 0: no limit");
  serve_->add_option("--push-ca", push_.trust,
                     "Certificates that receivers are trusted by, in PEM, instead of the system's");

  check_ = tool.add_subcommand("check", "Read a directory of tasks and prove its invariants");
  check_->add_option("DIR", directory_, "The directory")->required();

  bench_ = bench.add_subcommand("tasks", "Measure the task server beside beanstalkd and Redis");
  bench_->add_option("--dir", bench_options_.directory, "Where to write: the disk that is measured")
      ->capture_default_str();
  bench_->add_option("--rounds", bench_options_.rounds, "Rounds, of which the median counts")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  bench_->add_option("--seconds", bench_options_.seconds, "Of each measurement")
      ->check(CLI::Range(0.1, 600.0))
      ->capture_default_str();
  bench_->add_option("--only", bench_options_.only, "Parts, of which all are taken otherwise")
      ->check(CLI::IsMember(
          {"puts", "reserves", "http", "churn", "lateness", "memory", "many", "deletes", "idle"}))
      ->delimiter(',');
  bench_
      ->add_option(
          "--store", bench_options_.store,
          "postgres: servers that share a PostgreSQL, which is started for it, beside one "
          "on RocksDB and tables of jobs; the parts are puts, reserves, deletes, lateness, "
          "idle")
      ->check(CLI::IsMember({"rocksdb", "postgres"}))
      ->capture_default_str();
  bench_
      ->add_option(
          "--deletes", bench_options_.deletes,
          "With PostgreSQL: how many rows are deleted, and not vacuumed, before the work is "
          "measured again")
      ->check(CLI::Range(1'000ULL, 1'000'000'000ULL))
      ->capture_default_str();
  bench_->add_option("--many", bench_options_.many, "How many tasks the last part has")
      ->check(CLI::Range(1000ULL, 1'000'000'000ULL))
      ->capture_default_str();
  bench_->add_flag("--quick", bench_options_.quick, "Everything in about two minutes");
  bench_->add_option("--json", bench_options_.json, "Write the figures to this file");
}

int serve_command::run() {
  if (bench_->parsed()) {
    bench_options_.verge = std::filesystem::read_symlink("/proc/self/exe");
    if (bench_options_.quick) {
      bench_options_.rounds = std::min(bench_options_.rounds, 1);
      bench_options_.seconds = std::min(bench_options_.seconds, 1.0);
    }
    return bench::run_tasks_bench(bench_options_);
  }
  try {
    return check_->parsed() ? check() : serve();
  } catch (const store_error& e) {
    // The arguments are right, the disk is not: a supervisor can tell the two apart.
    std::fprintf(stderr, "verge: %s\n", e.what());
    return disk_failed;
  }
}

int serve_command::check() {
  const check_report report = check_rocks_store(directory_);
  for (const std::string& fault : report.faults) std::printf("fault: %s\n", fault.c_str());
  std::printf("%s: %llu tasks, %llu bytes of bodies, %llu faults\n", directory_.c_str(),
              static_cast<unsigned long long>(report.tasks),
              static_cast<unsigned long long>(report.bodies_bytes),
              static_cast<unsigned long long>(report.fault_count));
  return report.fault_count == 0 ? 0 : 1;
}

endpoint serve_command::address_of(const std::string& text) const {
  const auto [at, error] = endpoint::parse(text);
  if (error) {
    throw std::invalid_argument("'" + text + "' is no address: write one like 127.0.0.1:11300");
  }
  check_reach(at);
  return at;
}

void serve_command::check_reach(const endpoint& at) const {
  const bool closed = !certificate_.empty() && !tokens_.empty();
  if (!insecure_ && !closed && !is_loopback(at)) {
    throw std::invalid_argument(
        at.to_string() +
        " can be reached from other machines: give --tls-cert, --tls-key and --tokens, listen on "
        "127.0.0.1, or say --insecure if the network is yours alone");
  }
}

/// The sockets that systemd has passed on take the place of --listen and --http.
void serve_command::take_over(server_options& options) const {
  const std::vector<int> sockets = inherited_sockets();
  if (sockets.empty() || sockets.size() > 2) {
    throw std::invalid_argument(
        "--socket-activation needs one or two sockets of systemd, as "
        "packaging/systemd/verge.socket "
        "has them, and there are " +
        std::to_string(sockets.size()) + ": start the server by its unit, or give --listen");
  }
  const auto address = [this](int number) {
    sockaddr_storage at{};
    socklen_t size = sizeof at;
    ::getsockname(number, reinterpret_cast<sockaddr*>(&at), &size);
    const endpoint found = endpoint::from(reinterpret_cast<sockaddr*>(&at), size);
    check_reach(found);
    return found;
  };
  options.inherited = sockets[0];
  options.listen = address(sockets[0]);
  if (sockets.size() < 2) return;
  web::web_options& http = options.http.emplace();
  http.inherited = sockets[1];
  http.listen = address(sockets[1]);
}

int serve_command::serve() {
  server_options options;
  if (activated_) {
    take_over(options);
  } else {
    options.listen = address_of(listen_);
    if (!http_.empty()) options.http.emplace().listen = address_of(http_);
  }
  if (options.http) {
    web::web_options& http = *options.http;
    http.only_loopback = is_loopback(http.listen) && tokens_.empty();
    http.hosts = http_hosts_;
    http.limits.api.body = body_limit_;
    http.limits.connections = connections_;
  }
  if (!certificate_.empty()) {
    options.tls = tls_options{.certificate = certificate_, .key = key_};
  }
  options.tokens = tokens_;
  options.push = push_;
  if (push_private_) options.push.may_connect = [](const endpoint&) { return true; };
  options.directory = directory_;
  if (!store_.empty()) {
    if (!store_.starts_with("postgresql://") && !store_.starts_with("postgres://")) {
      throw std::invalid_argument(
          "--store is the address of a database, like "
          "postgresql://user@host/name; a directory is given with --data");
    }
    if (durability_ == "none" || leases_ != "durable") {
      throw std::invalid_argument(
          "tasks that are in a database have durable leases, and are on its disk: leave out "
          "--leases and --durability=none");
    }
    options.database = store_;
    options.shards = shards_;
    options.leases.length = std::chrono::milliseconds(lease_);
    options.peer = address_of(peer_);
  }
  options.in_memory = durability_ == "none";
  options.mode = durability_ == "written" ? durability::written : durability::synced;
  options.broker.durable_leases = leases_ == "durable";
  options.broker.most_in_memory = in_memory_;
  std::random_device random;
  const auto random_number = [&] { return std::uint64_t{random()} << 32 | random(); };
  options.broker.seed = random_number();
  options.broker.token_key = {.first = random_number(), .second = random_number()};
  options.limits.body = body_limit_;
  options.limits.connections = connections_;
  options.rocks.memtable_bytes = memtable_;
  options.rocks.notice = [](const std::string& text) {
    std::fprintf(stderr, "verge: %s\n", text.c_str());
  };
  options.processors = processors_;
  event_log log(log_ == "json"   ? event_log::form::json
                : log_ == "text" ? event_log::form::text
                                 : event_log::form::off,
                STDERR_FILENO);
  if (log_requests_ && options.http) options.http->log = &log;
  raise_descriptor_limit();
  // Bodies and the secrets of receivers are in the directory: it is for this user alone.
  ::umask(0077);

  // Before any thread is started, so that all have them blocked and sigwait gets them.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int s : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP}) sigaddset(&signals, s);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  std::atomic<bool> failed{false};
  const pid_t self = ::getpid();
  task_server server(options, [&](const std::string& why) {
    std::fprintf(stderr, "verge: %s\n", why.c_str());
    log.write("write-stopped", {{"why", why}});
    failed.store(true);
    ::kill(self, SIGTERM);
  });
  std::printf("verge %s serves tasks at %s, %s\n", std::string(version()).c_str(),
              server.address().to_string().c_str(),
              options.in_memory ? "in memory"
              : store_.empty()  ? ("from " + directory_).c_str()
                                : ("from " + postgres::without_password(store_)).c_str());
  if (const auto at = server.http_address()) {
    std::printf("and over HTTP at http%s://%s/\n", certificate_.empty() ? "" : "s",
                at->to_string().c_str());
  }
  std::fflush(stdout);
  log.write("started", {{"version", version()},
                        {"tasks", server.address().to_string()},
                        {"durability", durability_}});
  for (;;) {
    int got = 0;
    if (::sigwait(&signals, &got) != 0) continue;
    if (got == SIGHUP) {
      const std::string faults = server.reload();
      if (!faults.empty()) std::fprintf(stderr, "verge: %s\n", faults.c_str());
      std::printf(faults.empty() ? "read tokens and certificate again\n"
                                 : "kept what could not be read again\n");
      std::fflush(stdout);
      log.write("reloaded", {{"faults", faults}});
      continue;
    }
    if (got == SIGUSR1 || got == SIGUSR2) {
      server.drain(got == SIGUSR1);
      std::printf(got == SIGUSR1 ? "takes no more puts\n" : "takes puts again\n");
      log.write(got == SIGUSR1 ? "draining" : "taking", {});
      std::fflush(stdout);
      continue;
    }
    break;
  }
  server.stop();
  std::printf("stopped\n");
  log.write("stopped", {{"status", std::int64_t{failed.load() ? disk_failed : 0}}});
  return failed.load() ? disk_failed : 0;
}

}  // namespace verge::server
