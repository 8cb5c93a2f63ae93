// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "load.h"

/// What a program does that has its tasks in a table of PostgreSQL, without a task server: rows
/// that are inserted one by one, and a queue on FOR UPDATE SKIP LOCKED, as River and Oban have it.
/// A fetch takes the first jobs by priority, due time and id that no other worker has, and marks
/// them as running; each is completed when its work is done. The statements here are ours, of that
/// form, on libpq, with prepared statements: what is measured is the database.
namespace verge::server::bench {

class sql_queue {
 public:
  explicit sql_queue(std::string url) : url_(std::move(url)) {}

  /// An empty table with its index, in place of what is there.
  void make() const;
  /// Adds jobs that are due, with bodies of that size, in one statement; then the planner's
  /// statistics are made.
  void fill(std::uint64_t count, std::size_t body) const;
  /// Adds so many jobs, and deletes them. Nothing is vacuumed.
  void churn(std::uint64_t count, std::size_t body) const;

  /// One row and one commit each.
  load_figures inserts(int connections, double seconds, std::size_t body) const;
  struct fetching {
    int connections{64};
    int at_once{1};        ///< jobs that one fetch takes
    bool together{false};  ///< they are deleted in one statement, not one by one
  };
  /// Fetched and deleted, of which one is an operation.
  load_figures work(const fetching& how, double seconds) const;

 private:
  std::string url_;
};

}  // namespace verge::server::bench
