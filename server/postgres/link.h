// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <verge/clock.h>
#include <verge/fd.h>
#include <verge/task.h>

#include "../store/store.h"
#include "values.h"

struct pg_conn;
struct pg_result;

/// A connection to PostgreSQL, over libpq's non-blocking interface.
///
/// Statements are prepared when they are used first on a connection. All statements of one run()
/// are sent together and end with one Sync: they are one transaction and one round trip, and if one
/// fails, nothing of them is there.
///
/// Ground rules: one task uses a link. run() suspends its task while it waits and blocks no thread;
/// run_here() blocks, inside verge::blocking(), for code that cannot suspend. What ends in the
/// middle, by an exception or with its task, closes the link, so that no answer is taken for that
/// to another question: the next call connects again. Connecting blocks, inside verge::blocking().
namespace verge::server::postgres {

/// The database cannot be reached, or has not answered in time. Whether the statements were
/// executed is known only if `nothing_done`.
class link_error : public store_error {
 public:
  link_error(const std::string& what, bool nothing) : store_error(what), nothing_done(nothing) {}
  const bool nothing_done;
};

/// The database has refused a statement: nothing of the transaction was done.
class refusal : public store_error {
 public:
  refusal(const std::string& what, std::string c) : store_error(what), code(std::move(c)) {}
  const std::string code;  ///< SQLSTATE
};

/// A statement is known by the address of its text.
struct statement {
  const char* sql;
  parameters with;
};

/// The rows of one statement. Columns are in the binary form.
class rows {
 public:
  rows() = default;
  explicit rows(pg_result* r);
  int size() const noexcept;
  /// How many rows it has changed.
  std::uint64_t changed() const noexcept;
  std::string_view at(int row, int column) const noexcept;
  std::int64_t number(int row, int column) const { return number_at(at(row, column)); }

 private:
  std::shared_ptr<pg_result> result_;
};

struct link_options {
  std::string url;
  /// After so long an answer is not waited for any more.
  std::chrono::nanoseconds patience{std::chrono::seconds(30)};
  /// Refuses a database that acknowledges what is not on its disk.
  bool must_sync{true};
};

class link {
 public:
  explicit link(link_options options);
  link(const link&) = delete;
  link& operator=(const link&) = delete;
  ~link();

  /// The statements last until it has ended.
  verge::task<std::vector<rows>> run(const std::vector<statement>& all);
  std::vector<rows> run_here(const std::vector<statement>& all);
  /// Statements without parameters, with BEGIN and COMMIT of their own if they want; blocks.
  void script(const std::string& sql);
  /// The next call connects again.
  void close() noexcept;
  bool is_open() const noexcept { return conn_ != nullptr; }
  /// Instead of the time that the options give.
  void set_patience(std::chrono::nanoseconds p) noexcept { options_.patience = p; }

 private:
  enum class need { nothing, to_read, to_write };
  class use;
  void connect();
  void watch();
  void send(const std::vector<statement>& all);
  need step();
  std::vector<rows> finish();
  [[noreturn]] void fail(const std::string& doing, bool nothing_done);
  [[noreturn]] void lose(const std::string& why, bool nothing_done);

  link_options options_;
  std::unique_ptr<pg_conn, void (*)(pg_conn*)> conn_;
  fd watched_;  ///< a duplicate of the connection's descriptor
  std::vector<const char*> prepared_;
  std::vector<bool> is_answer_;  ///< of what was sent: a statement's, not that of its preparation
  std::size_t answered_{0};
  std::vector<rows> found_;
  std::optional<refusal> refused_;
  bool flushed_{true};
  bool synced_{true};
};

/// The text of an address without its password.
std::string without_password(const std::string& url);

}  // namespace verge::server::postgres
