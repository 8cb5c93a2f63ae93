// SPDX-License-Identifier: Apache-2.0

#include "sql_queue.h"

#include <fmt/format.h>
#include <libpq-fe.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <vector>

namespace verge::server::bench {

namespace {

using clock = std::chrono::steady_clock;
using result = std::unique_ptr<PGresult, void (*)(PGresult*)>;

constexpr const char* insert_sql =
    "INSERT INTO bench_job (queue, priority, due, body) VALUES ('default', 1024, now(), $1)";
constexpr const char* fetch_sql =
    "WITH free AS (SELECT id FROM bench_job WHERE state = 'available' AND queue = 'default' "
    "AND due <= now() ORDER BY priority, due, id LIMIT $1 FOR UPDATE SKIP LOCKED) "
    "UPDATE bench_job AS j SET state = 'running', attempt = attempt + 1, attempted = now() "
    "FROM free WHERE j.id = free.id RETURNING j.id, j.body";
constexpr const char* delete_sql = "DELETE FROM bench_job WHERE id = $1";
constexpr const char* delete_all_sql = "DELETE FROM bench_job WHERE id = ANY ($1::int8[])";

class connection {
 public:
  explicit connection(const std::string& url) : conn_(PQconnectdb(url.c_str()), PQfinish) {
    if (PQstatus(conn_.get()) != CONNECTION_OK) fail();
  }
  void run(const std::string& sql) const {
    const result r(PQexec(conn_.get(), sql.c_str()), PQclear);
    const auto status = PQresultStatus(r.get());
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) fail();
  }
  void prepare(const char* name, const char* sql) const {
    const result r(PQprepare(conn_.get(), name, sql, 0, nullptr), PQclear);
    if (PQresultStatus(r.get()) != PGRES_COMMAND_OK) fail();
  }
  void send(const char* name, const std::string& parameter) const {
    const char* const value = parameter.c_str();
    if (PQsendQueryPrepared(conn_.get(), name, 1, &value, nullptr, nullptr, 0) != 1) fail();
  }
  /// The answer to what was sent, if it is there.
  result take() const {
    if (PQconsumeInput(conn_.get()) != 1) fail();
    if (PQisBusy(conn_.get()) != 0) return {nullptr, PQclear};
    result r(PQgetResult(conn_.get()), PQclear);
    const auto status = PQresultStatus(r.get());
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) fail();
    // The end of it.
    while (const result more{PQgetResult(conn_.get()), PQclear}) {
    }
    return r;
  }
  int descriptor() const { return PQsocket(conn_.get()); }

 private:
  [[noreturn]] void fail() const {
    throw std::runtime_error(std::string("PostgreSQL: ") + PQerrorMessage(conn_.get()));
  }
  std::unique_ptr<PGconn, void (*)(PGconn*)> conn_;
};

/// One client of the table.
class worker {
 public:
  explicit worker(const std::string& url) : to(url) {}
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;
  virtual ~worker() = default;
  virtual void begin() = 0;
  /// Takes an answer and sends what follows. Returns how many operations are complete with it.
  virtual std::uint64_t go_on(const PGresult& answer) = 0;

  connection to;
  clock::time_point begun;
};

class inserter final : public worker {
 public:
  inserter(const std::string& url, std::size_t body) : worker(url), body_(body, 'b') {
    to.prepare("insert", insert_sql);
  }
  void begin() override { to.send("insert", body_); }
  std::uint64_t go_on(const PGresult&) override {
    begin();
    return 1;
  }

 private:
  std::string body_;
};

class fetcher final : public worker {
 public:
  fetcher(const std::string& url, const sql_queue::fetching& how)
      : worker(url), most_(std::to_string(how.at_once)), together_(how.together) {
    to.prepare("fetch", fetch_sql);
    to.prepare("delete", delete_sql);
    to.prepare("delete_all", delete_all_sql);
  }
  void begin() override { to.send("fetch", most_); }
  std::uint64_t go_on(const PGresult& answer) override {
    if (!fetched_.empty()) {
      const std::uint64_t done = together_ ? fetched_.size() : 1;
      if (together_) {
        fetched_.clear();
      } else {
        fetched_.pop_back();
      }
      next();
      return done;
    }
    for (int i = 0; i < PQntuples(&answer); ++i) fetched_.emplace_back(PQgetvalue(&answer, i, 0));
    next();
    return 0;
  }

 private:
  void next() {
    if (fetched_.empty()) return begin();
    if (!together_) return to.send("delete", fetched_.back());
    std::string all = "{";
    for (const std::string& id : fetched_) all.append(all.size() > 1 ? "," : "").append(id);
    to.send("delete_all", all + "}");
  }

  std::string most_;
  bool together_;
  std::vector<std::string> fetched_;
};

/// One thread, all of the workers.
load_figures run_all(const std::vector<std::unique_ptr<worker>>& all, double seconds) {
  std::vector<pollfd> waits;
  waits.reserve(all.size());
  for (const auto& w : all) waits.push_back({w->to.descriptor(), POLLIN, 0});
  const auto begin = clock::now();
  const auto end =
      begin + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(seconds));
  for (const auto& w : all) {
    w->begun = begin;
    w->begin();
  }
  std::uint64_t operations = 0;
  std::vector<float> times;
  while (clock::now() < end) {
    if (::poll(waits.data(), waits.size(), 100) <= 0) continue;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (waits[i].revents == 0) continue;
      worker& w = *all[i];
      const result r = w.to.take();
      if (r == nullptr) continue;
      const std::uint64_t done = w.go_on(*r);
      if (done == 0) continue;
      operations += done;
      const auto now = clock::now();
      times.push_back(std::chrono::duration<float, std::micro>(now - w.begun).count());
      w.begun = now;
    }
  }
  const std::chrono::duration<double> took = clock::now() - begin;
  return figures_of(operations, took.count(), std::move(times));
}

std::string add_jobs(std::uint64_t count, std::size_t body) {
  return fmt::format(
      "INSERT INTO bench_job (queue, priority, due, body) SELECT 'default', 1024, now(), "
      "repeat('b', {}) FROM generate_series(1, {})",
      body, count);
}

}  // namespace

void sql_queue::make() const {
  connection(url_).run(
      "SET client_min_messages = warning; DROP TABLE IF EXISTS bench_job; "
      "CREATE TABLE bench_job (id bigserial PRIMARY KEY, state text NOT NULL DEFAULT 'available', "
      "queue text NOT NULL, priority int4 NOT NULL, due timestamptz NOT NULL, "
      "attempt int4 NOT NULL DEFAULT 0, attempted timestamptz, body text NOT NULL); "
      "CREATE INDEX bench_job_fetch ON bench_job (state, queue, priority, due, id)");
}

void sql_queue::fill(std::uint64_t count, std::size_t body) const {
  const connection to(url_);
  to.run(add_jobs(count, body));
  to.run("ANALYZE bench_job");
}

void sql_queue::churn(std::uint64_t count, std::size_t body) const {
  const connection to(url_);
  to.run(add_jobs(count, body));
  to.run("DELETE FROM bench_job");
}

load_figures sql_queue::inserts(int connections, double seconds, std::size_t body) const {
  std::vector<std::unique_ptr<worker>> all;
  all.reserve(static_cast<std::size_t>(connections));
  for (int i = 0; i < connections; ++i) all.push_back(std::make_unique<inserter>(url_, body));
  return run_all(all, seconds);
}

load_figures sql_queue::work(const fetching& how, double seconds) const {
  std::vector<std::unique_ptr<worker>> all;
  all.reserve(static_cast<std::size_t>(how.connections));
  for (int i = 0; i < how.connections; ++i) all.push_back(std::make_unique<fetcher>(url_, how));
  return run_all(all, seconds);
}

}  // namespace verge::server::bench
