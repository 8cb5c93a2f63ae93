// SPDX-License-Identifier: Apache-2.0

#include "move_command.h"

#include <cstdio>
#include <stdexcept>

#include "cluster/move.h"
#include "postgres/schema.h"

namespace verge::server {

namespace {

bool is_database(const std::string& name) {
  return name.starts_with("postgresql://") || name.starts_with("postgres://");
}

}  // namespace

move_command::move_command(CLI::App& tool) {
  command_ = tool.add_subcommand(
      "move", "Copy all tasks from a directory to a database, or back, while no server runs");
  command_->add_option("FROM", from_, "A directory, or postgresql://user@host/name")->required();
  command_
      ->add_option("TO", to_, "The other: a directory that does not exist, or an empty database")
      ->required();
  command_->add_option("--shards", shards_, "Of a database without tables")
      ->check(CLI::Range(1U, postgres::most_shards))
      ->capture_default_str();
}

int move_command::run() {
  if (is_database(from_) == is_database(to_)) {
    throw std::invalid_argument(
        "one of the two is a directory and the other a database, like postgresql://user@host/name; "
        "a directory is copied with `verge backup`, a database with pg_dump");
  }
  const postgres::link_options database{.url = is_database(from_) ? from_ : to_,
                                        .must_sync = false};
  const cluster::move_report r = is_database(to_)
                                     ? cluster::move_to_database(from_, database, shards_)
                                     : cluster::move_to_directory(database, to_);
  std::printf("moved %llu tasks in %llu tubes, and %llu settings and schedules\n",
              static_cast<unsigned long long>(r.tasks), static_cast<unsigned long long>(r.tubes),
              static_cast<unsigned long long>(r.notes));
  std::printf("what was in %s is still there: do not serve both\n",
              postgres::without_password(from_).c_str());
  return 0;
}

}  // namespace verge::server
