// SPDX-License-Identifier: Apache-2.0

#include "link.h"

#include <libpq-fe.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <verge/runtime.h>

namespace verge::server::postgres {

namespace {

/// For every session. A plan goes by an index, and it is made each time: one that was made when the
/// table was almost empty reads all of it when it has grown. The server ends what it holds for a
/// machine that has lost its power.
constexpr const char* session =
    "SET plan_cache_mode = force_custom_plan; SET enable_seqscan = off; SET enable_sort = off; "
    "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_bitmapscan = off; "
    "SET client_min_messages = warning; SET jit = off; SET tcp_keepalives_idle = 5; "
    "SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3";

std::string text_of(const char* message) {
  std::string text = message;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string name_of(std::size_t statement) {
  std::string name("s");
  return name.append(std::to_string(statement));
}

std::string field(const PGresult* r, int which) {
  const char* const found = PQresultErrorField(r, which);
  return found == nullptr ? "" : found;
}

}  // namespace

rows::rows(pg_result* r) : result_(r, [](pg_result* p) { PQclear(p); }) {}

int rows::size() const noexcept { return result_ == nullptr ? 0 : PQntuples(result_.get()); }

std::uint64_t rows::changed() const noexcept {
  return std::strtoull(PQcmdTuples(result_.get()), nullptr, 10);
}

std::string_view rows::at(int row, int column) const noexcept {
  return {PQgetvalue(result_.get(), row, column),
          static_cast<std::size_t>(PQgetlength(result_.get(), row, column))};
}

std::string without_password(const std::string& url) {
  const std::size_t scheme = url.find("://");
  const std::size_t at = url.find('@');
  if (scheme == std::string::npos || at == std::string::npos) return url;
  const std::size_t colon = url.find(':', scheme + 3);
  if (colon == std::string::npos || colon > at) return url;
  return url.substr(0, colon) + url.substr(at);
}

link::link(link_options options) : options_(std::move(options)), conn_(nullptr, PQfinish) {}

link::~link() { close(); }

void link::close() noexcept {
  static_cast<void>(watched_.close());
  watched_ = {};
  conn_.reset();
  prepared_.clear();
}

void link::lose(const std::string& why, bool nothing_done) {
  close();
  throw link_error("the database at " + without_password(options_.url) + " " + why, nothing_done);
}

void link::fail(const std::string& doing, bool nothing_done) {
  const std::string why = text_of(PQerrorMessage(conn_.get()));
  lose(doing + ": " + why, nothing_done);
}

void link::connect() {
  blocking([this] {
    const char* const names[] = {"dbname", "connect_timeout", "application_name",
                                 "tcp_user_timeout", nullptr};
    const char* const values[] = {options_.url.c_str(), "5", "verge", "10000", nullptr};
    conn_.reset(PQconnectdbParams(names, values, 1));
    if (PQstatus(conn_.get()) != CONNECTION_OK) fail("cannot be reached", true);
    const auto ask = [this](const char* sql) {
      const std::unique_ptr<PGresult, void (*)(PGresult*)> r(PQexec(conn_.get(), sql), PQclear);
      const auto status = PQresultStatus(r.get());
      if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) fail("is not usable", true);
      return PQntuples(r.get()) > 0 ? std::string(PQgetvalue(r.get(), 0, 0)) : std::string();
    };
    ask(session);
    if (options_.must_sync) {
      if (ask("SELECT current_setting('fsync')") == "off") {
        lose(
            "has fsync = off, and would lose acknowledged tasks with the power: turn it on, or say "
            "--durability=written",
            true);
      }
      if (ask("SELECT current_setting('synchronous_commit')") == "off") {
        ask("SET synchronous_commit = on");
      }
    }
    if (ask("SELECT pg_is_in_recovery()") == "t") {
      lose(
          "is a standby, which takes no writes: name the primary, or add "
          "target_session_attrs=read-write to the address",
          true);
    }
  });
  if (PQsetnonblocking(conn_.get(), 1) != 0 || PQenterPipelineMode(conn_.get()) != 1) {
    fail("does not take statements", true);
  }
}

/// libpq closes its descriptor itself: what the runtime watches is a duplicate.
void link::watch() {
  const int copy = ::dup(PQsocket(conn_.get()));
  auto [watched, error] = fd::adopt(copy);
  if (error) {
    ::close(copy);
    lose("cannot be watched: " + error.message(), true);
  }
  watched_ = std::move(watched);
}

/// Nothing leaves this process before step().
void link::send(const std::vector<statement>& all) {
  is_answer_.clear();
  found_.clear();
  refused_.reset();
  answered_ = 0;
  for (const statement& s : all) {
    auto at = std::find(prepared_.begin(), prepared_.end(), s.sql);
    if (at == prepared_.end()) {
      const std::string name = name_of(prepared_.size());
      if (PQsendPrepare(conn_.get(), name.c_str(), s.sql, 0, nullptr) != 1) {
        fail("does not take statements", true);
      }
      prepared_.push_back(s.sql);
      at = prepared_.end() - 1;
      is_answer_.push_back(false);
    }
    const std::string name = name_of(static_cast<std::size_t>(at - prepared_.begin()));
    std::vector<const char*> values;
    std::vector<int> lengths;
    for (const std::string& v : s.with.values()) {
      values.push_back(v.data());
      lengths.push_back(static_cast<int>(v.size()));
    }
    const std::vector<int> binary(values.size(), 1);
    if (PQsendQueryPrepared(conn_.get(), name.c_str(), static_cast<int>(values.size()),
                            values.data(), lengths.data(), binary.data(), 1) != 1) {
      fail("does not take statements", true);
    }
    is_answer_.push_back(true);
  }
  if (PQpipelineSync(conn_.get()) != 1) fail("does not take statements", true);
  flushed_ = false;
  synced_ = false;
}

/// Does what can be done without waiting. Says what to wait for, until all is answered.
link::need link::step() {
  if (!flushed_) {
    const int left = PQflush(conn_.get());
    if (left < 0) fail("was lost", false);
    flushed_ = left == 0;
  }
  if (PQconsumeInput(conn_.get()) != 1) fail("was lost", false);
  while (!synced_ && PQisBusy(conn_.get()) == 0) {
    PGresult* const r = PQgetResult(conn_.get());
    if (r == nullptr) continue;  // the end of one statement's results
    rows taken(r);
    switch (PQresultStatus(r)) {
      case PGRES_PIPELINE_SYNC:
        synced_ = true;
        break;
      case PGRES_COMMAND_OK:
      case PGRES_TUPLES_OK:
        if (answered_ < is_answer_.size() && is_answer_[answered_]) found_.push_back(taken);
        ++answered_;
        break;
      case PGRES_PIPELINE_ABORTED:
        ++answered_;
        break;
      default: {
        ++answered_;
        const std::string code = field(r, PG_DIAG_SQLSTATE);
        // The server ends: then it closes the connection, and no Sync comes.
        if (code.starts_with("57P") || code.starts_with("08")) {
          lose("was lost: " + text_of(PQresultErrorMessage(r)), false);
        }
        if (!refused_) refused_.emplace(text_of(PQresultErrorMessage(r)), code);
      }
    }
  }
  if (synced_) return need::nothing;
  return flushed_ ? need::to_read : need::to_write;
}

std::vector<rows> link::finish() {
  if (refused_) {
    // What was prepared in a transaction that failed may be there or not.
    const refusal why = *refused_;
    if (std::find(is_answer_.begin(), is_answer_.end(), false) != is_answer_.end()) close();
    throw refusal("the database at " + without_password(options_.url) + " refuses: " + why.what(),
                  why.code);
  }
  return std::exchange(found_, {});
}

/// From the first statement to the last answer.
class link::use {
 public:
  explicit use(link& of) noexcept : of_(of) {}
  use(const use&) = delete;
  use& operator=(const use&) = delete;
  ~use() {
    if (!ended_) of_.close();
  }
  void end() noexcept { ended_ = true; }

 private:
  link& of_;
  bool ended_{false};
};

verge::task<std::vector<rows>> link::run(const std::vector<statement>& all) {
  use its(*this);
  if (conn_ == nullptr) connect();
  if (!watched_) watch();
  send(all);
  const auto until = clock::now() + options_.patience;
  for (need n = step(); n != need::nothing; n = step()) {
    static_cast<void>(watched_.set_deadline(until));
    std::error_code error;
    if (n == need::to_read) {
      error = co_await watched_.readable();
    } else {
      // It may wait for us to read before it takes more; the kernel's buffers hold what it says
      // meanwhile, which is little.
      error = co_await watched_.writable();
    }
    if (error) lose("has not answered in time: " + error.message(), false);
  }
  its.end();
  co_return finish();
}

std::vector<rows> link::run_here(const std::vector<statement>& all) {
  use its(*this);
  if (conn_ == nullptr) connect();
  send(all);
  blocking([this] {
    const auto until = std::chrono::steady_clock::now() + options_.patience;
    for (need n = step(); n != need::nothing; n = step()) {
      pollfd p{PQsocket(conn_.get()), static_cast<short>(n == need::to_read ? POLLIN : POLLOUT), 0};
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          until - std::chrono::steady_clock::now());
      if (left.count() <= 0) lose("has not answered in time", false);
      ::poll(&p, 1, static_cast<int>(left.count()) + 1);
    }
  });
  its.end();
  return finish();
}

/// On a connection of its own, outside of pipeline mode: afterwards there is none.
void link::script(const std::string& sql) {
  close();
  connect();
  std::optional<refusal> refused;
  blocking([&] {
    PQexitPipelineMode(conn_.get());
    const std::unique_ptr<PGresult, void (*)(PGresult*)> r(PQexec(conn_.get(), sql.c_str()),
                                                           PQclear);
    const auto status = PQresultStatus(r.get());
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) return;
    if (PQstatus(conn_.get()) != CONNECTION_OK) fail("was lost", false);
    refused.emplace("the database at " + without_password(options_.url) +
                        " refuses: " + text_of(PQresultErrorMessage(r.get())),
                    field(r.get(), PG_DIAG_SQLSTATE));
  });
  close();
  if (refused) throw refusal(*refused);
}

}  // namespace verge::server::postgres
