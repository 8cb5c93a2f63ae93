// SPDX-License-Identifier: Apache-2.0

// verge: the command line tool.
//
//   verge serve ...       serves delayed tasks that survive a crash
//   verge put, reserve, peek, cancel, reschedule, kick, stats, drain, backup
//                         are its client
//   verge schedule ...    sets, shows and removes tasks that recur
//   verge top [ADDRESS]   shows it and its tubes in a terminal, or a program that has an inspector
//   verge token ...       makes, lists and revokes tokens for it
//   verge cluster         shows the servers that share a database
//   verge move FROM TO    copies all tasks from a directory to a database, or back
//   verge check DIR       proves that what such a server has kept is in order
//   verge bench ...       measures verge's engines and other systems side by side
//   verge peer NAME       one of the linked systems, controlled line by line: what bench
//                         starts for each measurement
//
// Errors are one line that says what to do, and status 2.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <iostream>

#include <verge/version.h>

#include "../../bench/peers/protocol.h"
#include "../../bench/suite/systems.h"
#include "bench_command.h"
#ifdef VERGE_HAS_SERVER
#include "cluster_command.h"
#include "move_command.h"
#include "schedule_command.h"
#include "serve_command.h"
#include "task_commands.h"
#include "token_command.h"
#include "top_command.h"
#endif

namespace {

/// The error in the arguments, and the words that are accepted there.
std::string explain(const CLI::App* tool, const CLI::Error& e) {
  const auto parsed = tool->get_subcommands();
  const CLI::App& at = parsed.empty() ? *tool : *parsed.front();
  std::string text = std::string("verge: ") + e.what() + "\nthere are:";
  for (const CLI::App* command : at.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty()) text += " " + command->get_name();
  }
  for (const CLI::Option* option : at.get_options()) text += " " + option->get_name();
  return text + "\n";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The tool of verge, the timer runtime for C++ servers.", "verge");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string(verge::version()));
  app.failure_message(&explain);

  verge::bench::bench_command bench(app);
#ifdef VERGE_HAS_SERVER
  verge::server::serve_command server(app, *app.get_subcommand("bench"));
  verge::server::task_commands tasks(app);
  verge::server::token_command tokens(app);
  verge::server::schedule_command schedules(app);
  verge::server::top_command top(app);
  verge::server::cluster_command cluster(app);
  verge::server::move_command move(app);
#endif

  std::string name;
  CLI::App* peer = app.add_subcommand("peer", "Answer requests to one system, from the input");
  peer->group("");  // for bench, not for people
  peer->add_option("NAME", name)->required();

  try {
    app.parse(argc, argv);
    if (peer->parsed()) {
      serve(verge::bench::linked_peer_named(name), std::cin, std::cout);
      return 0;
    }
#ifdef VERGE_HAS_SERVER
    if (server.parsed()) return server.run();
    if (tasks.parsed()) return tasks.run();
    if (tokens.parsed()) return tokens.run();
    if (schedules.parsed()) return schedules.run();
    if (top.parsed()) return top.run();
    if (cluster.parsed()) return cluster.run();
    if (move.parsed()) return move.run();
#endif
    return bench.run();
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    return code == 0 ? 0 : 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "verge: %s\n", e.what());
    return 2;
  }
}
