// SPDX-License-Identifier: Apache-2.0

#include "task_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <stdexcept>

#include "session.h"
#include "text/time_text.h"

namespace verge::server {

namespace {

/// "90", "90s", "1500ms", "30m", "2h", "1d": in milliseconds. A bare number is seconds.
std::uint64_t milliseconds(const std::string& text) {
  const auto parsed = parse_duration(text, 1'000'000'000);
  if (!parsed) {
    throw std::invalid_argument("'" + text +
                                "' is no length of time: write one like 90s, 1500ms, 30m, 2h");
  }
  return static_cast<std::uint64_t>(*parsed / 1'000'000);
}

/// A body on the command line, or "-" for the standard input.
std::string read_body(const std::string& given) {
  if (given != "-") return given;
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

int tell(const session::answer& a, std::string_view good) {
  std::printf("%s\n", a.line.c_str());
  if (!a.chunk.empty()) std::printf("%s\n", a.chunk.c_str());
  return a.begins(good) ? 0 : 1;
}

}  // namespace

CLI::App* task_commands::add(CLI::App& tool, const char* name, const char* about) {
  CLI::App* c = tool.add_subcommand(name, about);
  c->add_option("--at", at_, "The server's address")->capture_default_str();
  c->add_option("--tube", tube_, "The tube")->capture_default_str();
  return c;
}

task_commands::task_commands(CLI::App& tool) {
  put_ = add(tool, "put", "Give a task to the server; prints its id");
  put_->add_option("BODY", body_, "The body, or - for the standard input")->required();
  put_->add_option("--delay", delay_, "When it is due: 90s, 1500ms, 30m, 2h")
      ->capture_default_str();
  put_->add_option("--ttr", ttr_, "How long a worker may take")->capture_default_str();
  put_->add_option("--priority", priority_, "Smaller is handed out first")->capture_default_str();
  put_->add_option("--key", key_, "A name of the task in its tube, for cancel and reschedule");
  put_->add_option("--if-exists", if_exists_, "What to do if a task has the key")
      ->check(CLI::IsMember({"keep", "replace", "refuse"}))
      ->capture_default_str();
  put_->add_option("--attempts", attempts_, "After so many it is buried; 0: no limit");
  put_->add_option("--backoff", backoff_, "The delay after a failed attempt; it doubles");
  put_->add_option("--dead", dead_, "The tube that it moves to in place of being buried");

  reserve_ = add(tool, "reserve", "Take the next task; it is given back when the command ends");
  reserve_->add_option("--timeout", limit_, "How long to wait for one")->capture_default_str();
  reserve_->add_flag("--delete", remove_, "Delete it: it is done");

  peek_ = add(tool, "peek", "Show a task without taking it");
  peek_->add_option("WHAT", what_, "An id, or ready, delayed or buried")->required();

  cancel_ = add(tool, "cancel", "Cancel a task by its key");
  cancel_->add_option("KEY", key_, "The key")->required();

  reschedule_ = add(tool, "reschedule", "Give a task another time, by its key");
  reschedule_->add_option("KEY", key_, "The key")->required();
  reschedule_->add_option("--delay", delay_, "When it is due from now")->required();

  kick_ = add(tool, "kick", "Make buried tasks ready; delayed ones if none is buried");
  kick_->add_option("COUNT", number_, "How many at most")->required();

  stats_ = add(tool, "stats", "Show the server's figures, a tube's or a task's");
  stats_->add_option("WHAT", what_, "Nothing, the name of a tube, or the id of a task");

  drain_ = add(tool, "drain", "Let the server take no more puts");
  drain_->add_flag("--off", off_, "Let it take them again");

  backup_ = add(tool, "backup", "Let the server copy its tasks while it serves");
  backup_->add_option("DIR", body_, "A directory that does not exist yet, on the same disk")
      ->required();
}

bool task_commands::parsed() const {
  const std::array all{put_, reserve_, peek_, cancel_, reschedule_, kick_, stats_, drain_, backup_};
  return std::any_of(all.begin(), all.end(), [](const CLI::App* c) { return c->parsed(); });
}

int task_commands::run() {
  // Errors in the arguments are reported before the server is asked.
  const std::uint64_t delay = milliseconds(delay_);
  const std::uint64_t ttr = milliseconds(ttr_);
  const std::uint64_t limit = milliseconds(limit_);
  std::string options;
  if (attempts_ != 0) options += fmt::format(" attempts={}", attempts_);
  if (!backoff_.empty()) options += fmt::format(" backoff={}", milliseconds(backoff_));
  if (!dead_.empty()) options += fmt::format(" dead={}", dead_);
  const std::string body = put_->parsed() ? read_body(body_) : body_;

  session s(at_);
  if (tube_ != "default") {
    const auto used = s.ask(fmt::format("use {}\r\n", tube_));
    if (!used.begins("USING")) {
      throw std::invalid_argument("'" + tube_ +
                                  "' is no name of a tube: use up to 200 of A-Z a-z "
                                  "0-9 - + / ; . $ _ ( ), not beginning with -");
    }
  }
  if (put_->parsed()) {
    const std::string arguments =
        fmt::format("{} {} {} {}{}\r\n{}\r\n", priority_, delay, ttr, body.size(), options, body);
    const auto a = key_.empty()
                       ? s.ask("put-ms " + arguments)
                       : s.ask(fmt::format("put-key {} {} {}", key_, if_exists_, arguments));
    const bool good = a.begins("INSERTED") || a.begins("KEPT") || a.begins("REPLACED");
    std::printf("%s\n", a.line.c_str());
    return good ? 0 : 1;
  }
  if (reserve_->parsed()) {
    if (tube_ != "default") {
      static_cast<void>(s.ask(fmt::format("watch {}\r\n", tube_)));
      static_cast<void>(s.ask("ignore default\r\n"));
    }
    const auto a = s.ask(fmt::format("reserve-with-timeout {}\r\n", (limit + 999) / 1000));
    if (remove_ && a.begins("RESERVED")) {
      const std::string id = a.line.substr(9, a.line.rfind(' ') - 9);
      if (!s.ask(fmt::format("delete {}\r\n", id)).begins("DELETED")) return 1;
    }
    return tell(a, "RESERVED");
  }
  if (peek_->parsed()) {
    const bool id = what_.find_first_not_of("0123456789") == std::string::npos;
    return tell(s.ask((id ? "peek " : "peek-") + what_ + "\r\n"), "FOUND");
  }
  if (cancel_->parsed()) return tell(s.ask("cancel " + key_ + "\r\n"), "CANCELLED");
  if (reschedule_->parsed()) {
    return tell(s.ask(fmt::format("reschedule {} {}\r\n", key_, delay)), "RESCHEDULED");
  }
  if (kick_->parsed()) return tell(s.ask(fmt::format("kick {}\r\n", number_)), "KICKED");
  if (drain_->parsed()) return tell(s.ask(off_ ? "drain off\r\n" : "drain on\r\n"), "DONE");
  if (backup_->parsed()) return tell(s.ask("backup " + body + "\r\n"), "DONE");
  const bool id = !what_.empty() && what_.find_first_not_of("0123456789") == std::string::npos;
  const auto a = s.ask(what_.empty() ? "stats\r\n"
                                     : fmt::format("stats-{} {}\r\n", id ? "job" : "tube", what_));
  if (!a.begins("OK")) return tell(a, "OK");
  std::printf("%s", a.chunk.substr(4).c_str());  // without the first line, which is ---
  return 0;
}

}  // namespace verge::server
